"""Memory of this process at a step boundary: P (allocated now) and P + E (peak), in bytes.

On a GPU they are PyTorch's own counters, which change in program order on the CPU, so no synchronisation is
needed to read them at a boundary. Elsewhere they are the process's resident set, now and at its highest.
"""

from __future__ import annotations

import sys


def sample() -> tuple[int, int] | None:
    """Return (persistent_bytes, peak_bytes), or None where neither source exists."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return cuda.memory_allocated(), cuda.max_memory_allocated()
    return resident()


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
