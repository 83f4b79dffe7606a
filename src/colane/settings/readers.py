"""What is written as the value of a setting, and what it means. Each raises ValueError with one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from colane.model.choices import MetricNames
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s
from colane.settings.setting import Raw

FACTOR_MAX: Final = 10.0
LEASE_MIN_S: Final = 10.0
"""Agents report every 2 s, and jobs are told to end a third of it ahead: a shorter one would end for a busy machine."""
LEASE_MAX_S: Final = 30 * 86_400.0
LEADER_LEASE_MIN_S: Final = 1.0
"""A leader writes four times in a lease: a disk that takes 0.2 s must not cost it the lead."""
LEADER_LEASE_MAX_S: Final = 3_600.0
GUARD_PERCENT_MAX: Final = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of finished jobs; without either bound, everything."""

    age_s: float | None = None  # records of jobs that ended longer ago are removed
    jobs: int | None = None  # at most so many records are kept, those with the highest ids

    def __str__(self) -> str:
        """As it is written on the command line."""
        if self.jobs is not None:
            return str(self.jobs)
        return "all" if self.age_s is None else f"{self.age_s:g}s"


def parse_retention(raw: Raw) -> Retention:
    """Return what `all`, a duration such as `30d`, or a number of jobs means.

    Raises ValueError: it is none of these.
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


def address(raw: Raw) -> str:
    """Return an address of the form `HOST:PORT`. Raises ValueError: it is none."""
    text = str(raw).strip()
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise ValueError(f"must be HOST:PORT such as 127.0.0.1:6379, got {text[:60]!r}")
    return text


def guard_ratio(raw: Raw) -> float | None:
    """Return how much slower than predicted is too slow: 0.3 of `30%` or `30`; None of `off`.

    Raises ValueError: it is neither.
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


def metrics_names(raw: Raw) -> frozenset[MetricNames]:
    """Return the families of `dcgm,slurm`; none of `none`. Raises ValueError: one is not known."""
    words = [word.strip() for word in str(raw).split(",")]
    known = {one.value: one for one in MetricNames}
    if words == ["none"]:
        return frozenset()
    unknown = [word for word in words if word not in known]
    if unknown:
        raise ValueError(f"must be none, or of {', '.join(known)}, got {unknown[0][:40]!r}")
    return frozenset(known[word] for word in words)


def duration_or_off_s(raw: Raw) -> float | None:
    """Return seconds; None of `off`. Raises ValueError: it is neither."""
    text = str(raw)
    if text.strip().lower() == "off":
        return None
    found_s = parse_duration_s(text)
    if found_s <= 0:
        raise ValueError(f"must be longer than nothing, or off, got {text[:40]!r}")
    return found_s


def duration_s(raw: Raw) -> float:
    """Return seconds. Raises ValueError: it is no duration."""
    return parse_duration_s(str(raw))


def leader_lease_s(raw: Raw) -> float:
    """Return how long a scheduler leads without having written; 0 of `off`: for ever, as no other may take over.

    Raises ValueError: it is no duration, or none that a lease may last.
    """
    if str(raw).strip().lower() == "off":
        return 0.0
    found_s = duration_s(raw)
    if not LEADER_LEASE_MIN_S <= found_s <= LEADER_LEASE_MAX_S:
        raise ValueError(
            f"must be from {LEADER_LEASE_MIN_S:g}s to {LEADER_LEASE_MAX_S:g}s, or off, got {str(raw)[:40]!r}"
        )
    return found_s


def own_url(raw: Raw) -> str:
    """Return the URL of a scheduler without a slash at its end. Raises ValueError: it is none."""
    text = str(raw).strip().rstrip("/")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not text.isprintable() or " " in text or parts.query or parts.fragment or parts.username:
        raise ValueError(f"must be a URL such as http://head:8642, got {text[:60]!r}")
    return text


def lease_s(raw: Raw) -> float:
    """Return how long jobs may go on without word from the scheduler.

    Raises ValueError: it is no duration, or none that a lease may last.
    """
    found_s = duration_s(raw)
    if not LEASE_MIN_S <= found_s <= LEASE_MAX_S:
        raise ValueError(f"must be from {LEASE_MIN_S:g}s to {LEASE_MAX_S / 86_400:g}d, got {raw}")
    return found_s


def some_time_s(raw: Raw) -> float:
    """Return seconds, more than none. Raises ValueError: it is no duration, or none."""
    found_s = duration_s(raw)
    if found_s == 0:
        raise ValueError("must be more than 0")
    return found_s


def some_time_or_off_s(raw: Raw) -> float | None:
    """Return seconds; None of `off`. Raises ValueError: it is neither."""
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
    """Return the safety factors on P, and on P + E. Raises ValueError: they are not two numbers from 1 up."""
    try:
        persistent, total = (float(part) for part in str(raw).split(","))
    except ValueError:
        persistent = total = 0.0
    if not (1 <= persistent <= FACTOR_MAX and 1 <= total <= FACTOR_MAX):
        raise ValueError(f"must be two numbers from 1 to {FACTOR_MAX:g}, as 1.1,1.05, got {raw!r}")
    return persistent, total


def bandwidth_bytes_per_s(raw: Raw) -> int:
    """Return bytes per second. Raises ValueError: it is not a rate."""
    return round(parse_bandwidth_bytes_per_s(str(raw)))
