"""Installs a bundle of `gpu/bundle` where there is no network, and goes on as `gpu/plan.py`. Needs Python and pip.

    gpu/run [--wheels gpu/wheels] [--site DIR] [OPTIONS OF gpu/plan.py]

Nothing of the machine is changed: the wheels go into a folder of their own, which goes before what is installed.
Without a bundle, what is installed is used. What is still missing is named before anything is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "gpu" / "wheels"
MANIFEST = "bundle.json"
DONE = ".complete"

MISSING = """
import importlib, json
missing = set()
for name in ("colane.server.main", "colane.engines.local", "benchmarks.handoff", "matplotlib", "torch"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing.add(error.name)
print(json.dumps(sorted(missing)))
"""
"""Imports what the scripts import, and names what is not there."""


class InstallError(Exception):
    """Why nothing can be run, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Install and measure; 2 when nothing can be run here."""
    parser = argparse.ArgumentParser(prog="gpu/run", description=(__doc__ or "").partition("\n")[0], add_help=False)
    parser.add_argument("--wheels", type=Path, default=WHEELS)
    parser.add_argument("--site", type=Path)
    options, others = parser.parse_known_args(argv)
    try:
        env = _environment(options)
        missing = _missing(env)
    except InstallError as error:
        sys.stderr.write(f"gpu/run: {error}\n")
        return 2
    if missing:
        sys.stderr.write(f"gpu/run: {', '.join(missing)} cannot be found here: make the bundle with it by gpu/bundle\n")
        return 2
    return subprocess.run([sys.executable, "-m", "gpu.plan", *others], env=env, cwd=ROOT, check=False).returncode


def _environment(options: argparse.Namespace) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    places = [str(ROOT), *([before] if before else [])]
    if (options.wheels / MANIFEST).is_file():
        places.insert(0, str(install(options.wheels, options.site)))
    elif options.wheels != WHEELS:
        raise InstallError(f"--wheels: {options.wheels} holds no {MANIFEST}: it must be made by gpu/bundle")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def install(wheels: Path, site: Path | None) -> Path:
    """Put all wheels of a bundle into a folder; one that is complete is used again.

    Raises:
        InstallError: A wheel is missing or spoilt, the Python is another one, or pip fails.
    """
    text = (wheels / MANIFEST).read_text(encoding="utf-8")
    manifest: dict[str, Any] = json.loads(text)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if manifest["python"] != here:
        made = manifest["python"]
        raise InstallError(f"the bundle is for Python {made}, this is {here}: make it with --python {here}")
    for name, digest in manifest["wheels"].items():
        path = wheels / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise InstallError(f"{path} is missing or not as it was made: make the bundle anew")
    place = site or Path(tempfile.gettempdir()) / f"colane-site-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not (place / DONE).exists():
        _install([wheels / name for name in manifest["wheels"]], place)
    return place


def _install(wheels: Sequence[Path], place: Path) -> None:
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(place)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words, *map(str, wheels)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"pip: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    (place / DONE).touch()


def _missing(env: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", MISSING], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InstallError(f"what is installed does not work: {(done.stderr.strip().splitlines() or ['no word'])[-1]}")
    return list(json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
