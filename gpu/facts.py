"""What this machine is, in seconds: all that explains later results, read before anything is measured.

    python gpu/facts.py [--out DIR] [--tiny]

Driver, GPUs as nvidia-smi describes them, cgroups, MPS, symbols of the driver's library, limits of this process. What
is not there is written as absent: nothing of it is a failure.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # so that the script can be run by its path as well
    sys.path.insert(0, str(ROOT))

from gpu.harness import Object, Run, Script, main  # noqa: E402

from colane.devices import suspend  # noqa: E402

EACH_MAX_S: Final = 8.0
"""A program that takes longer is told as silent: a driver that hangs must not cost the call."""
TEXT_MAX: Final = 60_000
COMMANDS: Final = {
    "nvidia-smi -q": ("nvidia-smi", "-q"),
    "nvidia-smi topo -m": ("nvidia-smi", "topo", "-m"),
    "nvidia-smi mig -lgi": ("nvidia-smi", "mig", "-lgi"),
}
PROGRAMS: Final = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "cuda-checkpoint", "ncu", "nsys", "gcc")
FILES: Final = {
    "driver": "/proc/driver/nvidia/version",
    "ptrace_scope": "/proc/sys/kernel/yama/ptrace_scope",
    "cgroup": "/proc/self/cgroup",
    "controllers": "/sys/fs/cgroup/cgroup.controllers",
}
PACKAGES: Final = ("torch", "nvidia-ml-py", "numpy")
SYMBOLS: Final = (*suspend.SYMBOLS, "cuDevicePrimaryCtxGetState", "cuMemCreate", "cuStreamBatchMemOp_v2")


def machine(run: Run) -> Object:
    """Read all of it."""
    found: Object = {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cores": sorted(os.sched_getaffinity(0)),
        "root": os.geteuid() == 0,
        "memlock_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "packages": {name: _version(name) for name in PACKAGES},
        "programs": {name: shutil.which(name) for name in PROGRAMS},
        "files": {name: _read(Path(path)) for name, path in FILES.items()},
        "cgroup_mounts": [line for line in (_read(Path("/proc/self/mounts")) or "").splitlines() if " cgroup" in line],
        "libcuda": _symbols(),
        "cannot_suspend": suspend.problem(),
        "said": {name: _said(command) for name, command in COMMANDS.items()},
    }
    absent = [name for name, text in found["said"].items() if text is None]
    run.notes.extend(f"{name} says nothing here" for name in absent)
    return found


def _said(command: tuple[str, ...]) -> str | None:
    """What a program prints; None where it is not there, fails or does not end."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=EACH_MAX_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or done.stderr)[:TEXT_MAX]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _symbols(load: Callable[[str], object] = ctypes.CDLL) -> dict[str, bool] | None:
    """Which functions the driver's library has; None where there is none. It is not initialised: that takes seconds."""
    try:
        library = load(suspend.LIBRARY)
    except OSError:
        return None
    return {name: hasattr(library, name) for name in SYMBOLS}


SCRIPT: Final = Script(
    name="facts",
    about="What this machine is.",
    parts={"machine": machine},
    tiny_parts=("machine",),
)

if __name__ == "__main__":
    sys.exit(main(SCRIPT))
