"""What is written as the value of a setting, and what it means. Each raises ValueError with one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s
from colane.settings.setting import Raw

FACTOR_MAX: Final = 10.0
LEASE_MIN_S: Final = 5.0
"""Agents report every 2 s, and killing takes a moment: under a shorter lease jobs would end for a busy machine."""
LEASE_MAX_S: Final = 30 * 86_400.0
GUARD_PERCENT_MAX: Final = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of finished jobs; without either bound, everything.

    Attributes:
        age_s: Records of jobs that ended longer ago are removed.
        jobs: At most so many records are kept, those with the highest ids.
    """

    age_s: float | None = None
    jobs: int | None = None

    def __str__(self) -> str:
        """As it is written on the command line."""
        if self.jobs is not None:
            return str(self.jobs)
        return "all" if self.age_s is None else f"{self.age_s:g}s"


def parse_retention(raw: Raw) -> Retention:
    """Return what `all`, a duration such as `30d`, or a number of jobs means.

    Raises:
        ValueError: It is none of these.
    """
    text = str(raw)
    wanted = text.strip().lower()
    if wanted == "all":
        return Retention()
    if wanted.isascii() and wanted.isdecimal():
        return Retention(jobs=int(wanted))
    try:
        return Retention(age_s=parse_duration_s(wanted))
    except ValueError:
        raise ValueError(f"must be all, a duration such as 30d, or a number of jobs, got {text[:40]!r}") from None


def guard_ratio(raw: Raw) -> float | None:
    """Return how much slower than predicted is too slow: 0.3 of `30%` or `30`; None of `off`.

    Raises:
        ValueError: It is neither.
    """
    text = str(raw)
    if text.strip().lower() == "off":
        return None
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= GUARD_PERCENT_MAX:
        raise ValueError(f"must be a percentage such as 30%, or off, got {text!r}")
    return percent / 100


def duration_s(raw: Raw) -> float:
    """Return seconds.

    Raises:
        ValueError: It is no duration.
    """
    return parse_duration_s(str(raw))


def lease_s(raw: Raw) -> float:
    """Return how long jobs may go on without word from the scheduler.

    Raises:
        ValueError: It is no duration, or none that a lease may last.
    """
    found_s = duration_s(raw)
    if not LEASE_MIN_S <= found_s <= LEASE_MAX_S:
        raise ValueError(f"must be from {LEASE_MIN_S:g}s to {LEASE_MAX_S / 86_400:g}d, got {raw}")
    return found_s


def some_time_s(raw: Raw) -> float:
    """Return seconds, more than none.

    Raises:
        ValueError: It is no duration, or none.
    """
    found_s = duration_s(raw)
    if found_s == 0:
        raise ValueError("must be more than 0")
    return found_s


def some_time_or_off_s(raw: Raw) -> float | None:
    """Return seconds; None of `off`.

    Raises:
        ValueError: It is neither.
    """
    if str(raw).strip().lower() == "off":
        return None
    try:
        found_s = duration_s(raw)
    except ValueError as error:
        raise ValueError(f"{error}, or off") from None
    if found_s == 0:
        raise ValueError("must be more than 0, or off")
    return found_s


def memory_factors(raw: Raw) -> tuple[float, float]:
    """Return the safety factors on P, and on P + E.

    Raises:
        ValueError: They are not two numbers from 1 up.
    """
    try:
        persistent, total = (float(part) for part in str(raw).split(","))
    except ValueError:
        persistent = total = 0.0
    if not (1 <= persistent <= FACTOR_MAX and 1 <= total <= FACTOR_MAX):
        raise ValueError(f"must be two numbers from 1 to {FACTOR_MAX:g}, as 1.1,1.05, got {raw!r}")
    return persistent, total


def bandwidth_bytes_per_s(raw: Raw) -> int:
    """Return bytes per second.

    Raises:
        ValueError: It is not a rate.
    """
    return round(parse_bandwidth_bytes_per_s(str(raw)))
