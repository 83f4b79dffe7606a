"""What must be read to understand one decision of a policy: the import closure of its parts, in files and lines.

What stands behind a contract is not counted: how beliefs about speed and memory are learnt (`perf.beliefs`), as
decisions ask `perf.estimates`; and what an agent may say in a field of a record (`model.bounds`, `model.versions`),
which is an annotation there and decides nothing. Of a part that its options switch off, only the file that says so is
counted: it binds to nothing.

usage: python benchmarks/reading_set.py [--files] [POLICY ...]
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import colane
from colane.scheduling.mechanisms.fairness.usage import PastUse
from colane.scheduling.mechanisms.preemption.preemption import Preemption, PreemptsFor
from colane.scheduling.mechanisms.sharing.beside_utility import BesideByUtility
from colane.scheduling.registry import NAMES, create

OFF: Mapping[type, Callable[[Any], bool]] = {
    Preemption: lambda part: part.preempts is PreemptsFor.NEVER,
    BesideByUtility: lambda part: part.jobs_per_gpu_max < 2,
    PastUse: lambda part: not part.usage_half_life_s,
}
"""When parts that some rows switch off are so; others say it themselves (`is_idle`)."""

BORDER = frozenset({"colane.model.bounds", "colane.model.versions"})

SOURCE = Path(next(iter(colane.__path__)))


def file_of(module: str) -> Path | None:
    """The file of a module of ours, None for a package without code of its own and for others' modules."""
    place = SOURCE.parent.joinpath(*module.split("."))
    found = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
    return found if module.startswith("colane.") else None


def parts(value: object, *, off: bool = False) -> set[str]:
    """Modules that the parts of a composition come from: those that do something, or those that are switched off."""
    if isinstance(value, tuple):
        return set[str]().union(*[parts(one, off=off) for one in value])
    is_off = OFF[type(value)](value) if type(value) in OFF else getattr(value, "is_idle", False)
    own = {type(value).__module__} if is_off is off else set[str]()
    if is_off or not is_dataclass(value):
        return own
    return own.union(*[parts(getattr(value, field.name), off=off) for field in fields(value)])


def closure(modules: set[str]) -> set[Path]:
    """Files of these modules and of all that they import."""
    found, left = set[Path](), list(modules)
    while left:
        path = file_of(left.pop())
        if path is None or path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module not in BORDER:
                left += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            elif isinstance(node, ast.Import):
                left += [name.name for name in node.names]
    return found


def reading_set(policy: str) -> set[Path]:
    """Files that must be read for a policy."""
    row = create(policy)
    return closure(parts(row)) | {path for path in map(file_of, parts(row, off=True)) if path is not None}


def lines_of(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text().splitlines())


def size(files: set[Path]) -> tuple[int, int]:
    """How many files, and how many lines in all."""
    return len(files), sum(map(lines_of, files))


def main() -> None:
    """Print a line for each policy, and its files."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("policies", nargs="*", default=sorted(NAMES), metavar="POLICY")
    asked.add_argument("--files", action="store_true", help="Name the files, the longest first.")
    options = asked.parse_args()
    for name in options.policies:
        found = reading_set(name)
        files, lines = size(found)
        print(f"{name:<18} {files:>4} files {lines:>7,} lines")
        for path in sorted(found, key=lambda path: (-lines_of(path), path)) if options.files else ():
            print(f"  {lines_of(path):>6,}  {path.relative_to(SOURCE)}")


if __name__ == "__main__":
    main()
