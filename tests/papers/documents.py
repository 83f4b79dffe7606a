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


OVERVIEW = FOLDER / "README.md"
HEAD = "# The papers: what is judged, what is an input, what needs a GPU\n"
JUDGEMENTS = ("met", "missed", "input", "not judged", "needs a GPU")


def overview() -> str:
    """The page that says it of all papers, from the tables of their pages."""
    lines = [
        HEAD,
        "`colane paper LETTER` finds what is published again, in simulation; `gpu/run` measures the rest on a GPU.",
        "A verdict follows from the rows of its claim by code. Numbers and orders published, by what became of them:",
        "",
        f"| paper | {' | '.join(JUDGEMENTS)} |",
        f"| --- |{' --- |' * len(JUDGEMENTS)}",
    ]
    kinds: dict[str, dict[str, list[str]]] = {}
    for letter, page in PAGES.items():
        table_ = parts(letter)[1]
        rows = [line.strip("| ").split(" | ") for line in table_.splitlines() if line.startswith(f"| {letter}-")]
        ids = {row[0].partition(":")[0]: row for row in rows}
        kinds[letter] = {
            "have an input": [name for name, row in ids.items() if "(input)" in row[2]],
            "are not judged": [name for name, row in ids.items() if row[3] == "not judged"],
            "need a GPU": [name for name, row in ids.items() if row[3] == "needs a GPU"],
        }
        counted = {what: number for number, what in re.findall(r"(\d+) ([a-zA-Z ]+)[,.]", table_.splitlines()[-1])}
        cells = [counted.get(judgement, "0") for judgement in JUDGEMENTS]
        lines.append(f"| [{letter}]({page}.md#claims) | {' | '.join(cells)} |")
    for kind in kinds["A"]:
        named = [", ".join(of[kind]) for of in kinds.values() if of[kind]]
        lines += ["", f"Claims that {kind}: {'; '.join(named)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Take the tables of a folder into the pages."""
    for letter, page in PAGES.items():
        before, _, after = parts(letter)
        found = (Path(sys.argv[1]) / letter / "claims.md").read_text(encoding="utf-8")
        (FOLDER / f"{page}.md").write_text(before + found + after, encoding="utf-8")
    OVERVIEW.write_text(overview(), encoding="utf-8")


if __name__ == "__main__":
    main()
