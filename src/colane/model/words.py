"""Numbers with their nouns, and sentences filled in: the one place that knows `1 core` from `2 cores`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from string import Formatter
from typing import Any, Final


def plural(number: float | str, noun: str) -> str:
    """Return a noun as it follows a number: `core` after 1, `cores` after all else."""
    if number in (1, "1"):
        return noun
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "ch", "x")) else f"{noun}s"


def count(number: float | str, noun: str) -> str:
    """Return a number with its noun: `1 core`, `2 cores`, `1,200 jobs`; a number given as text is kept."""
    return f"{number} {plural(number, noun)}"


def is_in(state: str) -> str:
    """Return a state as it is said of a job: `is running`, `has failed`."""
    return f"has {state}" if state in {"succeeded", "failed"} else f"is {state}"


def percent(ratio: float) -> str:
    """Return a part of a whole as people say it: `60 %` of 0.6."""
    return f"{100 * ratio:.0f} %"


def bytes_in_words(size_bytes: float) -> str:
    """Return a size as people read it: `3.22 GB`."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.3g} {unit}"
    return f"{size_bytes:g} bytes"


def fill(sentence: str, facts: Mapping[str, Any]) -> str:
    """Return a sentence with its facts: `{cores:core}` a number with its noun, `{part:percent}` a part as `60 %`.

    All else is as in `str.format`.

    Raises:
        KeyError: The sentence names a fact that is not there.
        ValueError, TypeError: A fact cannot be written as the sentence asks.
    """
    return _FILLER.vformat(sentence, (), facts) if _has_nouns(sentence) else sentence.format_map(facts)


@lru_cache(maxsize=1024)
def _has_nouns(sentence: str) -> bool:
    """Whether it has numbers with nouns; the others are filled by Python itself, which takes a tenth of the time."""
    return any(len(spec) > 1 and spec.isalpha() for _, _, spec, _ in Formatter().parse(sentence) if spec)


PERCENT: Final = "percent"


class _Filler(Formatter):
    """Takes a word as the noun of its number; Python's own format codes have one letter."""

    def format_field(self, value: object, format_spec: str) -> str:
        if format_spec == PERCENT:
            return percent(float(str(value)))
        if len(format_spec) > 1 and format_spec.isalpha():
            return count(value if isinstance(value, (int, float)) else str(value), format_spec)
        return str(super().format_field(value, format_spec))


_FILLER: Final = _Filler()


def about_lease(lease_s: float) -> str:
    """Say what becomes of jobs while the scheduler is away, in one line."""
    return (
        f"lease {lease_s:g} s: while the scheduler is away for longer, jobs of a pool of several nodes stand still; "
        "those of a pool's only node go on (--lease)"
    )
