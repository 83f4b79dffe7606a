"""Simulate with the Colane that is installed, and hold that its decision code is the compiled one.

usage: python -I scripts/try_wheel.py, with the Python of the environment to try
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import redirect_stdout
from importlib.metadata import files
from io import StringIO
from pathlib import Path

PACKAGE = "colane"


def compiled_modules() -> set[str]:
    """Names of the modules of which the installed wheel has compiled ones."""
    parts = [file.parts for file in files(PACKAGE) or () if file.suffix == ".so" and file.parts[0] == PACKAGE]
    return {".".join((*part[:-1], part[-1].partition(".")[0])) for part in parts}


def simulate() -> dict[str, float]:
    """Mean job completion time in seconds of two policies on the trace that comes with the package."""
    from colane.cli.app import run  # noqa: PLC0415 - what is tried

    with tempfile.TemporaryDirectory() as out, redirect_stdout(StringIO()):
        if code := run(["simulate", "--policy", "fifo", "--policy", "colane", "--out", out]):
            sys.exit(code)
        runs = json.loads((Path(out) / "summary.json").read_text())["runs"]
    return {run["policy"]: run["jct_s"]["mean"] for run in runs}


def main() -> None:
    """Exit with one line where something of it does not hold."""
    modules = {name for name in compiled_modules() if not name.endswith("__mypyc")}
    if not modules:
        sys.exit("the Colane that is installed has no compiled module")
    means = simulate()
    loaded = {name: str(sys.modules[name].__file__) for name in modules & sys.modules.keys()}
    plain = [name for name, file in loaded.items() if not file.endswith(".so")]
    if plain or f"{PACKAGE}.core.core" not in loaded:
        sys.exit(f"loaded as source though compiled: {', '.join(sorted(plain)) or 'none, and the core was not loaded'}")
    said = ", ".join(f"{policy} {mean_s:.1f} s" for policy, mean_s in means.items())
    sys.stdout.write(f"{len(loaded)} of {len(modules)} compiled modules simulated; mean time of jobs: {said}\n")


if __name__ == "__main__":
    main()
