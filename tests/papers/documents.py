"""The tables of claims in docs/papers: what `colane paper LETTER --out DIR` wrote into `claims.md`.

`python -m tests.papers.documents DIR` takes those of `colane paper all --out DIR` into the pages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from colane.lab.papers.claims import Claim, table

FOLDER = Path(__file__).parents[2] / "docs" / "papers"
PAGES = {"A": "colocation", "B": "sharing", "C": "topology", "D": "cpu", "E": "elasticity"}
BEGIN, END = "<!-- by colane paper {letter} -->\n", "<!-- end -->\n"


def parts(letter: str) -> tuple[str, str, str]:
    """The page before its table, the table, and the page after it."""
    text = (FOLDER / f"{PAGES[letter]}.md").read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN.format(letter=letter))
    found, end, after = rest.partition(END)
    assert begin
    assert end
    return before + begin, found, end + after


def stale(letter: str, claims: Sequence[Claim], but: str = "$") -> list[str]:
    """Lines of the page's table that are not what was found, and those that lack; not of ids that match `but`."""
    here, there = (
        [line for line in text.splitlines() if not re.match(rf"\| (?:{but})", line)]
        for text in (table(claims), parts(letter)[1])
    )
    return [line for line in (*here, *there) if (line in here) is not (line in there)]


def main() -> None:
    """Take the tables of a folder into the pages."""
    for letter, page in PAGES.items():
        before, _, after = parts(letter)
        found = (Path(sys.argv[1]) / letter / "claims.md").read_text(encoding="utf-8")
        (FOLDER / f"{page}.md").write_text(before + found + after, encoding="utf-8")


if __name__ == "__main__":
    main()
