"""Memory of this process at a step boundary: P (allocated now) and P + E (the peak), in bytes.

On a GPU they are PyTorch's own counters, which change in program order on the CPU, so no synchronisation is
needed to read them at a boundary. Its allocator takes whole blocks of the device: the peak is that of the blocks, so
that what lay between the pieces of them counts. Of the blocks that it does not use at a boundary it cannot give back
all: those in pieces and those of graphs stay, which is seen by asking it to (`give_back`). What the device holds beside
(contexts, libraries) only its driver knows. Elsewhere they are the process's resident set, now and at its highest.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from .aside import safely
from .capture import excluded
from .device_clock import devices_in_use

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


SLACK_BYTES = 64 * 1024**2  # what a script may hold between steps one time more than another: a batch, some losses


class MemorySample:
    """What this process holds.

    Attributes:
        persistent_bytes: P.
        peak_bytes: P + E.
        reserved_bytes: Blocks that PyTorch's allocator holds of its GPU now, used or not; 0 of the host's memory.
        on_gpu: Whether it is memory of a GPU.
    """

    __slots__ = ("on_gpu", "peak_bytes", "persistent_bytes", "reserved_bytes")

    @property
    def unused_bytes(self) -> int:
        """What the allocator holds and does not use now."""
        return max(0, self.reserved_bytes - self.persistent_bytes)

    def __init__(
        self, persistent_bytes: int, peak_bytes: int, reserved_bytes: int = 0, *, on_gpu: bool = False
    ) -> None:
        self.persistent_bytes, self.peak_bytes = persistent_bytes, peak_bytes
        self.reserved_bytes, self.on_gpu = reserved_bytes, on_gpu


def sample() -> MemorySample | None:
    """Take a sample; None where neither source exists.

    With several GPUs in one process it is that of its busiest. Allocators that take the place of PyTorch's own (RMM, a
    pluggable one) keep no such counters: of a process that uses one, its driver alone can tell.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if torch is not None and cuda is not None and cuda.is_initialized():
        told = (_of_gpu(torch, gpu) for gpu in range(cuda.device_count()))
        return max((one for one in told if one is not None), key=_peak, default=None)
    return resident()


def is_in_use(persistent_bytes: int) -> bool:
    """Whether this process holds much more of its GPU than it does between steps: then it is within one."""
    sampled = sample() if persistent_bytes else None
    if sampled is None or not sampled.on_gpu:
        return False
    return sampled.persistent_bytes > persistent_bytes + max(SLACK_BYTES, persistent_bytes // 20)


def give_back(cuda: Any, note: Callable[[int], None] | None) -> None:
    """Let the allocator give back what it can, with the devices idle and no graph captured; note what stays unused."""
    with suppress(RuntimeError):  # of an allocator without a cache: nothing runs on the device all the same
        cuda.empty_cache()

    def tell() -> None:
        left = sample() if note is not None else None
        if note is not None and left is not None and left.on_gpu:
            note(left.unused_bytes)

    safely(tell)


class Trials:
    """When a job that gives no turn up is to show what of its allocator's blocks stays: what is kept of its steps.

    It is tried once its first steps are made, and again where the allocator holds much more than at the last time.
    """

    def __init__(self) -> None:
        self._tried_bytes = 0

    def are_due(self, sampled: MemorySample) -> bool:
        """Whether it is worth a trial, given a sample of now; then `take` one."""
        if sampled.unused_bytes <= SLACK_BYTES or not sampled.on_gpu:
            return False
        return sampled.reserved_bytes - self._tried_bytes > max(SLACK_BYTES, self._tried_bytes // 20)

    def take(self, sampled: MemorySample, note: Callable[[int], None]) -> None:
        """Give back what can be, and note how much of what is not used stays."""
        torch = sys.modules["torch"]
        with excluded as may_wait:
            if not may_wait:
                return
            self._tried_bytes = sampled.reserved_bytes
            for device in devices_in_use(torch):
                torch.cuda.synchronize(device)
            give_back(torch.cuda, note)


def _of_gpu(torch: Any, gpu: int) -> MemorySample | None:
    """Read the counters of one GPU; the public `memory_stats` flattens some hundred of them first."""
    try:
        counters = torch._C._cuda_memoryStats(gpu)  # noqa: SLF001
        allocated, reserved = counters["allocated_bytes"]["all"], counters["reserved_bytes"]["all"]
    except (RuntimeError, LookupError, TypeError):
        return None
    peak = max(allocated["peak"], reserved["peak"])
    return MemorySample(allocated["current"], peak, reserved["current"], on_gpu=True)


def _peak(sampled: MemorySample) -> int:
    return sampled.peak_bytes


def resident(status: str = "/proc/self/status") -> MemorySample | None:
    """Take resident bytes now and at their peak.

    The peak is VmHWM, not `ru_maxrss`: the latter survives exec, so it may be that of the job's launcher.
    """
    try:
        with open(status, "rb") as file:  # noqa: PTH123  # pathlib is an import the job did not ask for
            fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        now, peak = (int(fields[key].split()[0]) * 1024 for key in (b"VmRSS", b"VmHWM"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return MemorySample(now, max(now, peak))
