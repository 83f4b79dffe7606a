"""What must be read to understand one decision of a policy: the import closure of its parts, in files and lines.

Of a part that its options switch off, only the file that says so is counted: it binds to nothing.

usage: python benchmarks/reading_set.py [POLICY ...]
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
"""When parts that some rows switch off are so."""

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
    is_off = type(value) in OFF and OFF[type(value)](value)
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
            if isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            elif isinstance(node, ast.Import):
                left += [name.name for name in node.names]
    return found


def reading_set(policy: str) -> tuple[int, int]:
    """How many files and lines must be read for a policy."""
    row = create(policy)
    files = closure(parts(row)) | {path for path in map(file_of, parts(row, off=True)) if path is not None}
    return len(files), sum(len(path.read_text().splitlines()) for path in files)


def main() -> None:
    """Print a line for each policy."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("policies", nargs="*", default=sorted(NAMES), metavar="POLICY")
    for name in asked.parse_args().policies:
        files, lines = reading_set(name)
        print(f"{name:<18} {files:>4} files {lines:>7,} lines")


if __name__ == "__main__":
    main()
