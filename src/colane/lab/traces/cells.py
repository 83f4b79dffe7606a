"""Parsers of one cell of text. Each raises `ValueError` with a message that says what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - recorded stamps carry no zone; differences are all that counts


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {text!r}")
    return value


def json_number(value: object) -> float:
    """A finite number of a JSON document, which Python reads NaN and Infinity from, too."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {'nothing' if value is None else repr(value)}")
    return float(value)


def seconds(text: str) -> float:
    """A finite number of seconds, not negative."""
    value = number(text)
    if value < 0:
        raise ValueError(f"must not be negative, got {text!r}")
    return value


def milliseconds(text: str) -> float:
    """A finite number of milliseconds, not negative, as seconds."""
    return seconds(text) / 1000


def count(text: str) -> int:
    """A whole number, not negative; `2.0` counts as 2."""
    try:
        value = int(text)
    except ValueError:
        value = _whole(text)
    if value < 0:
        raise ValueError(f"must not be negative, got {text!r}")
    return value


def at_least_one(text: str) -> int:
    """A whole number from 1."""
    value = count(text)
    if value < 1:
        raise ValueError(f"must be at least 1, got {text!r}")
    return value


def integer(text: str) -> int:
    """A whole number, of any sign."""
    try:
        return int(text)
    except ValueError:
        return _whole(text)


def ratio(text: str) -> float:
    """A part of a whole: above 0, at most 1."""
    value = number(text)
    if not 0 < value <= 1:
        raise ValueError(f"must be above 0 and at most 1, got {text!r}")
    return value


def flag(text: str) -> bool:
    """`1`, `true`, `yes` or `0`, `false`, `no`."""
    word = text.strip().lower()
    if word in {"1", "true", "yes"}:
        return True
    if word in {"0", "false", "no"}:
        return False
    raise ValueError(f"expected 1 or 0, got {text!r}")


def stamp(text: str) -> float:
    """A date and time without zone, as seconds since 1970-01-01 00:00 of the same unnamed zone."""
    try:
        return (datetime.fromisoformat(text) - EPOCH).total_seconds()
    except (ValueError, TypeError):
        raise ValueError(f"expected a date and time like 2017-10-09 07:01:55, got {text!r}") from None


def zoned_stamp(text: str) -> float:
    """A date and time with its offset from UTC, as seconds since 1970-01-01 00:00 UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"expected a date and time with its offset like 2023-03-01 00:18:22+08:00, got {text!r}")
    return moment.timestamp()


def name(text: str) -> str:
    """Text that is not empty and no number."""
    try:
        float(text)
    except ValueError:
        return word(text)
    raise ValueError(f"expected a name, got {text!r}")


def word(text: str) -> str:
    """Text that is not empty."""
    value = text.strip()
    if not value:
        raise ValueError("must not be empty")
    return value


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same parser; an empty cell is None."""
    return lambda text: parse(text) if text else None


def otherwise(default: T, parse: Callable[[str], T]) -> Callable[[str], T]:
    """The same parser; an empty cell is the default."""
    return lambda text: parse(text) if text else default


def _whole(text: str) -> int:
    value = number(text)
    if not value.is_integer():
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(value)
