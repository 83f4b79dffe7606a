"""Lines and files of each room, and how many private functions have one caller: `python -m tests.house.measure`."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "colane"
WORD = re.compile(r"\w+")


class Size(NamedTuple):
    """Of a room: lines of its Python files, blank ones too, and how many files these are."""

    lines: int
    files: int


def rooms(source: Path = SOURCE) -> dict[str, Size]:
    """Return the size of each folder of the source that holds Python."""
    sizes: dict[str, Size] = {}
    for room in sorted(path for path in source.iterdir() if path.is_dir()):
        texts = [path.read_text(encoding="utf-8") for path in room.rglob("*.py")]
        if texts:
            sizes[room.name] = Size(sum(text.count("\n") for text in texts), len(texts))
    return sizes


class Private(NamedTuple):
    """A private function, how often its file names it beside its definition, and how many statements it has."""

    place: str
    uses: int
    statements: int


def privates(source: Path = SOURCE) -> Iterator[Private]:
    """Yield each private function and method of the source."""
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        words = Counter(WORD.findall(text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match(r"_[^_]", node.name):
                body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
                yield Private(f"{path.relative_to(source)}:{node.lineno} {node.name}", words[node.name] - 1, len(body))


def main() -> None:
    """Print all of it; with a room's name, its private functions of one or two statements that have one caller."""
    if len(sys.argv) > 1:
        for one in privates(SOURCE / sys.argv[1]):
            if one.uses == 1 and one.statements <= 2:
                print(one.place)  # noqa: T201 - what this is for
        return
    sizes = rooms()
    for name, size in sizes.items():
        print(f"{name:12} {size.lines:7,} lines {size.files:4} files")  # noqa: T201
    lines, files = map(sum, zip(*sizes.values(), strict=True))
    every = list(privates())
    once = [one for one in every if one.uses == 1]
    short = sum(one.statements <= 2 for one in once)
    print(f"{'all':12} {lines:7,} lines {files:4} files")  # noqa: T201
    print(  # noqa: T201
        f"{len(once) / len(every):.0%} of {len(every):,} private functions have one caller, "
        f"{short:,} of these at most two statements"
    )


if __name__ == "__main__":
    main()
