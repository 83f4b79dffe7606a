"""Code that was copied: each idea has one home, so no long run of like lines may stand twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES_MAX = {"src/colane": 9, "tests": 13}
"""So many lines in a row may be those of another place, as were when this was written: the numbers only go down."""


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of code with their numbers: no imports, blank lines, comments and lone brackets."""
    is_import = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if is_import:
            is_import = ")" not in text
        elif text.startswith(("import ", "from ")):
            is_import = "(" in text and ")" not in text
        elif len(text) > 2 and not text.startswith("#"):
            yield number, text


@pytest.mark.parametrize("folder", LINES_MAX)
def test_no_long_run_of_lines_stands_twice(folder: str) -> None:
    run, seen, copies = LINES_MAX[folder] + 1, dict[tuple[str, ...], str](), list[str]()
    for path in sorted((ROOT / folder).rglob("*.py")):
        lines = list(lines_of(path))
        for first in range(len(lines) - run + 1):
            place = f"{path.relative_to(ROOT)}:{lines[first][0]}"
            there = seen.setdefault(tuple([text for _, text in lines[first : first + run]]), place)
            if there != place:
                copies.append(f"{place} is as {there}")
    assert copies == []
