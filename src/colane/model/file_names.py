"""Names of a job's files with places for its own names: `logs/%x-%j.out`, as Slurm writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PLACE: Final = re.compile(r"%(?P<width>[0-9]*)(?P<letter>.?)", re.DOTALL)
WIDTH_MAX: Final = 10

PLACES: Final[Mapping[str, str]] = {
    "j": "the job's id", "x": "its name", "A": "its array's id", "a": "its index in an array", "u": "its user",
    "N": "its machine", "%": "a per cent sign",
}  # fmt: skip
OF_ARRAYS: Final = frozenset("Aa")
OF_ONE: Final = frozenset("aj")  # those by which the files of an array's elements are told apart


def letters(pattern: str) -> set[str]:
    """Return which places a name has."""
    return {match["letter"] for match in _PLACE.finditer(pattern)}


def problem(pattern: str, *, is_array: bool) -> str | None:
    """Return what is wrong with a name; None where nothing is."""
    for match in _PLACE.finditer(pattern):
        letter = match["letter"]
        if letter not in PLACES:
            known = ", ".join(f"%{one} ({what})" for one, what in PLACES.items())
            return f"has {match.group()!r}; known are {known}"
        if int(match["width"] or 0) > WIDTH_MAX:
            return f"has {match.group()!r}: a number may be {WIDTH_MAX} digits wide"
        if letter in OF_ARRAYS and not is_array:
            return f"has %{letter}, which is of arrays: give --array, or leave it out"
    return None


def is_apart(pattern: str) -> bool:
    """Whether elements of an array have files of their own by this name, or write to no file."""
    return pattern.startswith("/dev/") or bool(letters(pattern) & OF_ONE)


def filled(pattern: str, values: Mapping[str, object]) -> str:
    """Return the name with values, by letter, in its places; a slash in a value is no directory."""

    def value(match: re.Match[str]) -> str:
        if match["letter"] == "%":
            return "%"
        text = str(values.get(match["letter"], match.group())).replace("/", "_")
        return text.zfill(int(match["width"])) if match["width"] and text.isdecimal() else text

    return _PLACE.sub(value, pattern)
