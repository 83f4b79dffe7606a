"""Which of several names was meant by one that was typed wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import takewhile
from typing import Final

LIKE_ENOUGH: Final = 0.75


def nearest(typed: str, names: Iterable[str]) -> list[str]:
    """Return the names that one slip of the hand makes of what was typed, else the one most alike; empty if none is."""
    plain = _plain(typed)
    ranked = sorted(dict.fromkeys(names), key=lambda name: _distance(plain, _plain(name)))
    slips = [name for name in ranked if is_slip(plain, _plain(name))]
    return slips or [name for name in ranked[:1] if likeness(plain, _plain(name)) >= LIKE_ENOUGH]


def _plain(name: str) -> str:
    """Without what people do not mind: capitals, and underscores for dashes."""
    return name.lower().replace("_", "-")


def _distance(typed: str, name: str) -> tuple[bool, bool, float]:
    """Swapped and doubled letters come before others: they are what hands do."""
    return sorted(typed) != sorted(name), set(typed) != set(name), -likeness(typed, name)


def is_slip(typed: str, name: str) -> bool:
    """Whether one letter was left out, put in, mistaken, or swapped with the next."""
    start = _alike(typed, name)
    end = _alike(typed[start:][::-1], name[start:][::-1])
    one, other = typed[start : len(typed) - end], name[start : len(name) - end]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


def _alike(one: str, other: str) -> int:
    """How many letters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def likeness(typed: str, name: str) -> float:
    """0 to 1; that one begins with the other counts for much, as endings are left out or put on."""
    ratio = difflib.SequenceMatcher(None, typed, name).ratio()
    is_start = min(len(typed), len(name)) > 3 and (typed.startswith(name) or name.startswith(typed))
    return max(ratio, 0.75 + ratio / 4) if is_start else ratio


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean a or b?)`, empty when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
