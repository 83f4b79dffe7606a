"""Conditions on other jobs, as people write them: `ok:12,any:@~2`, or in Slurm's words."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from colane.model.arrays import Indexes, parse_indexes
from colane.model.phases import DependsOn
from colane.model.quantities import parse_duration_s

# -- Times before which jobs may not start, as people write them: from now, at an hour, or on a date.

NOW = "now"
HOURS: Final = {"midnight": "00:00", "noon": "12:00", "elevenses": "11:00", "fika": "15:00", "teatime": "16:00"}
DAYS: Final = {"today": 0, "tomorrow": 1}
_DATE: Final = re.compile(r"(\d\d)[/.]?(\d\d)(?:[/.]?(?:20)?(\d\d))?(?:-(\d\d?:\d\d(?::\d\d)?))?")
"""Month, day, year and hour, as `sbatch` takes them: `0130`, `01/30/27-08:00`."""


def begin_time_s(text: str, now_s: float) -> float:
    """Return the Unix time that a text names; hours and dates without a zone are of this machine's.

    Raises ValueError: it names none.
    """
    said = text.strip()
    if said.startswith(NOW):
        more = said.removeprefix(NOW).strip()
        if not more:
            return now_s
        if more.startswith("+"):
            return now_s + parse_duration_s(more[1:].strip())
    said = HOURS.get(said.lower(), said)
    try:
        if said.lower() in DAYS:
            day = datetime.fromtimestamp(now_s).date() + timedelta(days=DAYS[said.lower()])  # noqa: DTZ006
            return datetime.combine(day, datetime.min.time()).timestamp()
        if (date := _DATE.fullmatch(said)) is not None:
            year = f"20{date[3]}" if date[3] else datetime.fromtimestamp(now_s).strftime("%Y")  # noqa: DTZ006
            hour = (date[4] or "00:00").rjust(5, "0")
            return datetime.fromisoformat(f"{year}-{date[1]}-{date[2]}T{hour}").timestamp()
        is_hour = ":" in said and said.replace(":", "").isdecimal()
        return _hour_s(said, now_s) if is_hour else datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        known = "now+2h, tomorrow, a time as 16:00 or a date as 2030-12-01T08:00"
        raise ValueError(f"must be {known}, got {text!r}") from error


def _hour_s(said: str, now_s: float) -> float:
    """The next time that the clock of this machine shows that hour."""
    now = datetime.fromtimestamp(now_s)  # noqa: DTZ006 - of this machine's zone
    hour = datetime.strptime(said, "%H:%M:%S" if said.count(":") > 1 else "%H:%M").time()  # noqa: DTZ007
    at = datetime.combine(now.date(), hour)
    return (at if at.timestamp() > now_s else at + timedelta(days=1)).timestamp()


@lru_cache(maxsize=64)  # a batch's jobs begin at one time, and the system's zone takes longer than all else of them
def time_text(at_s: float) -> str:
    """Return a time as people read it, by this machine's clock."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


CONDITIONS_MAX: Final = 1_000  # of one job: each is looked at when the job it names moves


class AskedCondition(NamedTuple):
    """A condition as its owner writes it."""

    on: DependsOn  # what must have happened
    job: int  # the job's id; 0 where it is counted back
    back: int | None = None  # submissions of the owner between it and this one; None where the id is given
    # which of its elements are meant, where it is an array; None: the job, or the array, as a whole
    elements: Indexes | None = None
    is_each: bool = False  # each element of the array that waits waits for the one with its index


SINGLETON: Final = "singleton"
"""In the place of a condition: all jobs of the owner with this job's name that were submitted before it have ended."""

_WORDS: Final = {
    **{each.value: each for each in DependsOn},
    "afterok": DependsOn.OK,
    "afternotok": DependsOn.FAIL,
    "afterany": DependsOn.ANY,
    "after": DependsOn.START,
}
EACH: Final = frozenset({"each", "aftercorr"})
BACK: Final = "@"
_COMMA: Final = re.compile(r",(?![^\[\]]*\])")
_COLON: Final = re.compile(r":(?![^\[\]]*\])")
_ELEMENTS: Final = re.compile(r"(?P<job>[^\[\]_]*)(\[(?P<indexes>[^\[\]]*)\]|_(?P<index>[0-9]+))?", re.ASCII)
_FORM: Final = (
    "ok:12, fail:12, any:12 or start:12, or each:12 of arrays, several with commas; @ is your last job, @~2 the "
    "one two before it"
)


def parse_asked(text: str) -> tuple[list[AskedCondition], bool]:
    """Return the conditions that a text names, and whether `singleton` is one of them.

    `ok:12,any:13`; Slurm's words mean the same (`afterok:12:13`); a job without a word must succeed. Raises ValueError:
    it is no such text.
    """
    found: list[AskedCondition] = []
    is_singleton = False
    for part in _COMMA.split(text.replace(" ", "")):  # those between conditions, not those within brackets
        if part == SINGLETON:
            is_singleton = True
            continue
        word, *jobs = _COLON.split(part)
        if word.lower() in EACH and jobs:
            found += [_each(job) for job in jobs]
            continue
        on = _WORDS.get(word.lower()) if jobs else DependsOn.OK
        if on is None:
            raise ValueError(f"must be {_FORM}, got {part[:40]!r}")
        found += [_one(on, job) for job in jobs or [word]]
    jobs_named = sum(1 if each.elements is None else each.elements.size for each in found)
    if jobs_named > CONDITIONS_MAX:
        raise ValueError(f"must name at most {CONDITIONS_MAX} jobs, got {jobs_named}")
    return found, is_singleton


def _each(text: str) -> AskedCondition:
    asked = _one(DependsOn.OK, text)
    if asked.elements is not None:
        raise ValueError(f"each:{text} must name an array as a whole, as each:12")
    return asked._replace(is_each=True)


def _one(on: DependsOn, text: str) -> AskedCondition:
    match = _ELEMENTS.fullmatch(text)
    if match is None:
        raise ValueError(f"must be {_FORM}, got {text[:40]!r}")
    asked, indexes = _job(on, match["job"]), match["index"] if match["indexes"] is None else match["indexes"]
    return asked if indexes is None else asked._replace(elements=parse_indexes(indexes))


def _job(on: DependsOn, job: str) -> AskedCondition:
    digits = job.removeprefix(f"{BACK}~") if job.startswith(f"{BACK}~") else "0" if job == BACK else None
    number = job if digits is None else digits
    if not (number.isascii() and number.isdecimal()) or len(number) > 15 or (digits is None and int(number) == 0):
        raise ValueError(f"must be {_FORM}, got {job[:40]!r}")
    return AskedCondition(on, int(number)) if digits is None else AskedCondition(on, 0, int(number))
