"""Memory of this process at a step boundary: P (allocated now) and P + E (peak), in bytes.

On a GPU they are PyTorch's own counters, which change in program order on the CPU, so no synchronisation is
needed to read them at a boundary. Elsewhere they are the process's resident set, now and at its highest.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any


def sample() -> tuple[int, int] | None:
    """Return (persistent_bytes, peak_bytes), or None where neither source exists.

    With several GPUs in one process they are those of its busiest.
    """
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if torch is not None and cuda is not None and cuda.is_initialized():
        return max((_allocated(torch, gpu) for gpu in range(cuda.device_count())), key=_peak, default=None)
    return resident()


def _allocated(torch: Any, gpu: int) -> tuple[int, int]:
    """Read two counters of one GPU; the public `memory_stats` flattens some hundred of them first."""
    counters = torch._C._cuda_memoryStats(gpu)["allocated_bytes"]["all"]  # noqa: SLF001
    return counters["current"], counters["peak"]


def _peak(sampled: tuple[int, int]) -> int:
    return sampled[1]


def resident(status: str = "/proc/self/status") -> tuple[int, int] | None:
    """Return resident bytes now and at their peak.

    The peak is VmHWM, not `ru_maxrss`: the latter survives exec, so it may be that of the job's launcher.
    """
    try:
        with open(status, "rb") as file:  # noqa: PTH123  # pathlib is an import the job did not ask for
            fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        now, peak = (int(fields[key].split()[0]) * 1024 for key in (b"VmRSS", b"VmHWM"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return now, max(now, peak)
