"""What must be read to understand one decision of a policy: the import closure of its parts, in files and lines.

usage: python benchmarks/reading_set.py [POLICY ...]
"""

from __future__ import annotations

import argparse
import ast
from dataclasses import fields, is_dataclass
from pathlib import Path

import colane
from colane.scheduling.registry import NAMES, create

SOURCE = Path(next(iter(colane.__path__)))


def file_of(module: str) -> Path | None:
    """The file of a module of ours, None for a package without code of its own and for others' modules."""
    place = SOURCE.parent.joinpath(*module.split("."))
    found = next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
    return found if module.startswith("colane.") else None


def parts(value: object) -> set[str]:
    """Modules that the parts of a composition come from."""
    if isinstance(value, tuple):
        return set().union(*map(parts, value))
    if not is_dataclass(value):
        return {type(value).__module__}
    inner = [parts(getattr(value, field.name)) for field in fields(value)]
    return {type(value).__module__}.union(*inner)


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


def main() -> None:
    """Print a line for each policy."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("policies", nargs="*", default=sorted(NAMES), metavar="POLICY")
    for name in asked.parse_args().policies:
        files = closure(parts(create(name)))
        lines = sum(len(path.read_text().splitlines()) for path in files)
        print(f"{name:<18} {len(files):>4} files {lines:>7,} lines")


if __name__ == "__main__":
    main()
