"""Numbers with their nouns: the one place that knows `1 core` from `2 cores`."""

from __future__ import annotations

import re


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


def by_name(name: str) -> list[tuple[int, str]]:
    """Return what names are put in order by as people do it: `n2` before `n10`."""
    parts = re.split(r"(\d+)", name.casefold())
    return [(int(part) if at % 2 else 0, "" if at % 2 else part) for at, part in enumerate(parts)]


def percent(ratio: float) -> str:
    """Return a part of a whole as people say it: `60 %` of 0.6."""
    return f"{100 * ratio:.0f} %"


def about(seconds: float) -> str:
    """Return a time as roughly as it is known: `40 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            number = round(seconds / size)
            return count(number, unit) if unit == "day" else f"{number} {unit}"
    return f"{max(1, round(seconds))} s"


def bytes_in_words(size_bytes: float) -> str:
    """Return a size as people read it: `3.22 GB`."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.3g} {unit}"
    return f"{size_bytes:g} bytes"


def about_lease(lease_s: float) -> str:
    """Say what becomes of jobs while the scheduler is away, in one line."""
    return (
        f"lease {lease_s:g} s: while the scheduler is away for longer, jobs of a pool of several nodes stand still; "
        "those of a pool's only node go on (--lease)"
    )
