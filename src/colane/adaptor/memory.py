"""Memory of this process at a step boundary: P (allocated now) and P + E (the peak), in bytes.

On a GPU they are PyTorch's own counters, which change in program order on the CPU, so no synchronisation is
needed to read them at a boundary. Its allocator takes whole blocks of the device: the peak is that of the blocks, so
that what lay between the pieces of them counts. What the device holds beside (contexts, libraries) only its driver
knows. Elsewhere they are the process's resident set, now and at its highest.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any


SLACK_BYTES = 64 * 1024**2
"""What a script may hold between steps one time more than another: a batch, some losses."""


class MemorySample:
    """What this process holds.

    Attributes:
        persistent_bytes: P.
        peak_bytes: P + E.
        reserved_bytes: Blocks that PyTorch's allocator holds of its GPU now, used or not; 0 of the host's memory.
        on_gpu: Whether it is memory of a GPU.
    """

    __slots__ = ("on_gpu", "peak_bytes", "persistent_bytes", "reserved_bytes")

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
