"""That every number marked as a paper's stands in that paper's text, where the texts are at hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from colane.lab.papers.claims import Claim, Figure, Origin

LETTERS_MIN = 3
"""A single digit stands everywhere: it is to be named with what stands beside it."""


def text_of(folder: Path, letter: str) -> str:
    """The paper's text on one line, without the marks of formulas; skips the test where it is not there."""
    found = sorted(folder.glob(f"{letter}-*.txt"))
    if not found:
        pytest.skip(f"{folder} holds no text of paper {letter}")
    return plain(found[0].read_text(encoding="utf-8"))


def plain(text: str) -> str:
    """White space as one blank; no dollar signs, braces, backslashes and words of LaTeX."""
    for mark in (r"\\approx", r"\\text", r"\\times", r"[$\\{}]"):
        text = re.sub(mark, "", text)
    text = re.sub(r"(\d[\d.]*)x\1", r"\1x", text.replace("\N{MULTIPLICATION SIGN}", "x"))  # formulas stand twice
    return re.sub(r"\s+", " ", text)


def not_printed(claims: Iterable[Claim], text: str) -> list[str]:
    """Numbers that are said to be the paper's and are not in its text, each with its claim."""
    missing = []
    for claim in claims:
        for one in claim.stated:
            if isinstance(one, Figure) and one.source is Origin.PAPER:
                printed = one.printed or f"{one.stated:g}"
                pattern = rf"(?<![\d.]){re.escape(printed)}(?!\.?\d)"
                if len(printed) < LETTERS_MIN or not re.search(pattern, text):
                    missing.append(f"{claim.id} {one.what}: {printed}")
    return missing
