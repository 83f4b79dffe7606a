"""Makes a whole machine of emulated GPUs: every Python there has them under its PyTorch, and the NVML that agrees.

    python -m tests.emulated.bare_machine FOLDER [--gpus 1] [--gib 4]

Prints what its environment has, one `NAME=value` a line; `gpu/run --small` is rehearsed there. The driver's
double is built where there is gcc, and MPS's control program is a double, too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import JOB_SIDE, Machine

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("libcuda.c")
MPS_CONTROL = ROOT / "tests/agent/fake-mps-control"

SITE = """
import os, sys
os.environ.setdefault("EMULATED_CUDA", {home!r})
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # its NVML goes before a bundle's
sys.path.append({job_side!r})
import emulated_cuda
emulated_cuda.install()
"""
"""Jobs are given few variables: what leads to the GPUs stands here."""

NVML = """
import importlib.machinery, importlib.util, os, sys
from pathlib import Path
here = os.path.dirname(os.path.abspath(__file__))
spec = importlib.machinery.PathFinder.find_spec("pynvml", [p for p in sys.path if os.path.abspath(p or ".") != here])
sys.modules["pynvml"] = real = importlib.util.module_from_spec(spec)
spec.loader.exec_module(real)
sys.path.append({root!r})
from tests.emulated.nvml import EmulatedNvml
class WithConstants(EmulatedNvml):
    def __getattr__(self, name):
        value = getattr(real, name)
        if callable(value) and not isinstance(value, type):
            raise AttributeError(name)  # a call that this driver does not have
        return value
sys.modules["pynvml"] = WithConstants(Path({home!r}))
"""
"""The emulation's double, with the constants and classes of the real module, takes its place."""


def install(folder: Path, gpus: int = 1, gib: int = 4) -> dict[str, str]:
    """Make it in a folder; what the environment of every process there has."""
    machine = Machine(folder / "gpus", *(Kind(f"GPU-{n}", total_bytes=gib * 2**30) for n in range(gpus)))
    site = folder / "site"
    site.mkdir()
    home = str(machine.home)
    (site / "sitecustomize.py").write_text(SITE.format(home=home, job_side=str(JOB_SIDE)))
    (site / "pynvml.py").write_text(NVML.format(home=home, root=str(ROOT)))
    for made in ("bin", "mps"):
        (folder / made).mkdir()
    shutil.copy(MPS_CONTROL, folder / "bin" / "nvidia-cuda-mps-control")
    programs = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    env = {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "PATH": programs, "MPS_FAKE": str(folder / "mps")}
    if shutil.which("gcc"):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", site / "libcuda.so.1", SOURCE], check=True)
        env["LD_LIBRARY_PATH"] = str(site)
    return env


def main(argv: Sequence[str] | None = None) -> int:
    """Make one and print its environment."""
    parser = argparse.ArgumentParser(prog="bare_machine", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--gib", type=int, default=4, help="memory of each")
    options = parser.parse_args(argv)
    for name, value in install(options.folder.absolute(), options.gpus, options.gib).items():
        sys.stdout.write(f"{name}={value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
