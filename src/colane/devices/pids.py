"""Whether the process numbers that a driver gives are those we see: in a container they may be the machine's own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # inode number that Linux gives the first pid namespace (include/linux/proc_ns.h)

_CUDA_DEVICE = "/dev/nvidia-uvm"  # what a process has open that computes; one that only asks NVML has not


def is_first_namespace(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether we see the numbers of the machine itself, which every driver gives."""
    try:
        return os.stat(namespace).st_ino == _INITIAL_PID_NAMESPACE  # noqa: PTH116 - one call
    except OSError:
        return True


def is_translated(pids: Iterable[int], proc: Path = Path("/proc"), file: str = _CUDA_DEVICE) -> bool:
    """Whether a driver gives numbers of our own namespace: all are there, and one of them computes (0 is hidden).

    Args:
        pids: As the driver gives them.
        proc: Where processes are.
        file: What one that computes has open.
    """
    shown = [pid for pid in pids if pid]
    return all((proc / str(pid)).exists() for pid in shown) and any(_computes(proc / str(pid), file) for pid in shown)


def _computes(process: Path, file: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(process / "fd"):  # noqa: PTH208 - of many processes
            with suppress(OSError):
                if os.readlink(process / "fd" / name) == file:  # noqa: PTH115
                    return True
    return False
