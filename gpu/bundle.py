"""Collects what the scripts here need on a machine without a network: Colane's own wheel and those it depends on.

    gpu/bundle [--python 3.12] [--there FILE] [--torch VERSION] [--mib-max 48] [--out gpu/wheels]

Run it where pip reaches an index, with a Python that has pip: `PYTHON=/path/to/python gpu/bundle` chooses it. `--there`
names what is installed on that machine, as `pip freeze` prints it there: what of it serves is left out, PyTorch first
of all. Without PyTorch there, `--torch` takes it into the bundle; it must be a build for CUDA, and weighs gigabytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

try:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name
except ModuleNotFoundError:  # a fresh environment has pip's own copy alone
    from pip._vendor.packaging.requirements import (  # type: ignore[no-redef,import-not-found,unused-ignore]
        InvalidRequirement,
        Requirement,
    )
    from pip._vendor.packaging.utils import canonicalize_name  # type: ignore[no-redef,import-not-found,unused-ignore]

ROOT: Final = Path(__file__).resolve().parents[1]
WHEELS: Final = ROOT / "gpu" / "wheels"
MANIFEST: Final = "bundle.json"
MIB: Final = 2**20
GLIBC_MAX: Final = 39
"""Of the newest platform tag that is asked for; pip matches each tag exactly, so all from 2.17 on are named."""
BESIDE: Final = ("pytest",)
"""What the scripts import besides Colane: they share doubles with the tests."""


class BundleError(Exception):
    """Why there is no bundle, in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make a bundle; 0 when it is there."""
    options = _parse(argv)
    try:
        there = {} if options.there is None else read_there(options.there)
        with tempfile.TemporaryDirectory() as folder:
            own = _build(Path(folder) / "own")
            found = _download(own, options, there, Path(folder) / "found")
            kept, left_out = without(found, there, options.python)
            return _put(kept, left_out, options)
    except BundleError as error:
        sys.stderr.write(f"gpu/bundle: {error}\n")
        return 1


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu/bundle", description=(__doc__ or "").partition("\n")[0])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", default=version, help=f"Python there (default {version})")
    parser.add_argument("--there", type=Path, help="what `pip freeze` printed there; it is left out where it serves")
    parser.add_argument("--torch", metavar="VERSION", help="take this PyTorch into the bundle")
    parser.add_argument("--mib-max", type=float, default=48.0, help="refuse to make a larger one (default 48)")
    parser.add_argument("--out", type=Path, default=WHEELS, help="where the wheels go")
    options = parser.parse_args(argv)
    parts = options.python.split(".")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        parser.error(f"--python: must be two numbers such as 3.12, got {options.python!r}")
    return options


def read_there(path: Path) -> dict[str, str]:
    """Versions by name, of lines such as `numpy==2.5.2` or `torch @ file:///...`, whose version is taken to serve.

    Raises:
        BundleError: The file cannot be read, or names nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"--there: {path} cannot be read: {error}") from error
    found: dict[str, str] = {}
    for line in lines:
        name, _, version = line.partition("==")
        name = name.partition(" @ ")[0].strip()
        if name and not name.startswith(("#", "-")):
            found[canonicalize_name(name)] = version.strip()
    if not found:
        raise BundleError(f"--there: {path} names no package; it must be what `pip freeze` prints")
    return found


def _build(folder: Path) -> Path:
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("colane-*.whl"))


def _download(own: Path, options: argparse.Namespace, there: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """Wheels by name, Colane's own among them."""
    if "torch" not in there and not options.torch:
        raise BundleError("no PyTorch: name what is there by --there, or take it along by --torch VERSION")
    wanted = [str(own), *BESIDE, *([f"torch=={options.torch}"] if options.torch else [])]
    places = [f"manylinux_2_{minor}_x86_64" for minor in range(17, GLIBC_MAX + 1)] + ["manylinux2014_x86_64"]
    words = ["--only-binary=:all:", "--python-version", options.python, "--implementation", "cp"]
    words += [word for place in places for word in ("--platform", place)]
    _pip("download", "--dest", str(folder), *words, *wanted)
    found: dict[str, Path] = {}
    for path in sorted(folder.glob("*.whl")):
        found[canonicalize_name(path.name.partition("-")[0])] = path
    if options.torch and not any(line.startswith(("nvidia-", "cuda-")) for line in requirements(found["torch"])):
        raise BundleError(f"{found['torch'].name} is not built for CUDA: an index of pip's configuration goes first")
    return found


def _pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise BundleError(f"pip {words[0]}: {said[-1] if said else 'failed'}")


def requirements(wheel: Path) -> list[str]:
    """What a wheel says it requires."""
    with ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(file.read(name).decode()).get_all("Requires-Dist", [])


def without(found: Mapping[str, Path], there: Mapping[str, str], python: str) -> tuple[dict[str, Path], dict[str, str]]:
    """Leave out what is there already in a version that all others can use."""
    asked: dict[str, list[Requirement]] = {}
    for wheel in found.values():
        for need in _needs(wheel, python):
            asked.setdefault(canonicalize_name(need.name), []).append(need)
    serves = {name: there[name] for name in found if name in there and _serves(there[name], asked.get(name, ()))}
    return {name: path for name, path in found.items() if name not in serves}, serves


def _serves(version: str, asked: Sequence[Requirement]) -> bool:
    return not version or all(need.specifier.contains(version, prereleases=True) for need in asked)


def _needs(wheel: Path, python: str) -> list[Requirement]:
    """Requirements that hold on that machine, of extras none."""
    where = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "extra": "",
        "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }  # fmt: skip
    found = []
    for line in requirements(wheel):
        try:
            need = Requirement(line)
        except InvalidRequirement:
            continue
        if need.marker is None or need.marker.evaluate(where):
            found.append(need)
    return found


def _put(kept: Mapping[str, Path], left_out: Mapping[str, str], options: argparse.Namespace) -> int:
    sizes = {path.name: path.stat().st_size for path in kept.values()}
    whole_mib = sum(sizes.values()) / MIB
    if whole_mib > options.mib_max:
        largest = ", ".join(sorted(sizes, key=lambda name: -sizes[name])[:3])
        raise BundleError(f"{whole_mib:.0f} MiB are more than --mib-max {options.mib_max:g}; the largest are {largest}")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    digests = {}
    for path in kept.values():
        shutil.copy2(path, options.out)
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest: dict[str, Any] = {"python": options.python, "wheels": digests, "left_out": dict(left_out)}
    (options.out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    print(f"{len(kept)} wheels, {whole_mib:.1f} MiB, in {options.out}; {len(left_out)} left out, being there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
