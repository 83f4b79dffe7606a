"""What users have used of late: GPU seconds that count half as much after each half-life.

A second of a GPU counts once it is over, for each job that shared it. What jobs that hold GPUs have used since they
were given them is added by the caller; all else is kept here, charged when a job leaves its GPUs.

Source: multifactor priority plugin of Slurm (PriorityDecayHalfLife).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Final, NamedTuple

from colane.model.job import Job

DAY_S: Final = 24 * 3600.0
HALF_LIFE_S: Final = 7 * 24 * 3600.0  # of use, where the policy names none


TRUTHS_MIN: Final = 5
"""So many jobs in a row must keep to their totals before those of a user are believed again: one is made in no time."""


class UsedGpus(NamedTuple):
    """GPU seconds of a user, as they counted at `at_s`."""

    user: str  # the user
    gpu_s: float  # the seconds
    at_s: float  # when they counted so much
    # jobs in a row that must keep to their declared totals of steps before these are believed again
    truths_owed: int = 0
    month_s: float = 0.0  # when the month began, by the calendar, in which it was charged last
    month_gpu_s: float = 0.0  # GPU seconds in that month, each in full

    def in_month(self, month_s: float) -> float:
        """GPU seconds of jobs that have left their GPUs, in the month that began then."""
        return self.month_gpu_s if self.month_s == month_s else 0.0


def month_of(now_s: float) -> tuple[float, float]:
    """When the month of the calendar began, and when the next one does (UTC)."""
    first = _first_of_month(int(now_s // DAY_S))
    return first * DAY_S, _first_of_month(first + 32) * DAY_S


def _first_of_month(day: int) -> int:
    """The first day of a day's month, both counted from 1970-01-01.

    Source: H. Hinnant, chrono-compatible low-level date algorithms (civil_from_days): years begin in March.
    """
    of_era = (day + 719_468) % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    return day - of_year + (153 * ((5 * of_year + 2) // 153) + 2) // 5


def gpu_s_since(job: Job, month_s: float, now_s: float) -> float:
    """GPU seconds of a job on the GPUs that it holds now, of those since the month began."""
    return job.gpu_count * min(held_s(job, now_s), now_s - month_s) if job.gpus_held else 0.0


def held_s(job: Job, now_s: float) -> float:
    """How long a job has held the GPUs it was given last, pauses left out."""
    if job.placement is None or job.run.assigned_s is None:
        return 0.0
    return max(0.0, now_s - job.run.assigned_s - job.paused_s(now_s))


def counted_gpu_s(job: Job, now_s: float, half_life_s: float) -> float:
    """What these seconds count now, as if the job had held its GPUs without a pause until now."""
    return job.gpu_count * half_life_s / log(2.0) * (1.0 - _left(held_s(job, now_s), half_life_s))


def _left(passed_s: float, half_life_s: float) -> float:
    """What part of a use counts that is so long ago."""
    return float(0.5 ** (max(0.0, passed_s) / half_life_s))


class UsageBook:
    """Use by jobs that have left their GPUs.

    Attributes:
        half_life_s: After so long use counts half as much.
        used: Of each user, as it was charged last.
        charged: Users who were charged since this was cleared.
        is_charged: Whether jobs that leave GPUs are charged at all: where nothing goes by it, now or after a restart,
            that costs more than it says.
    """

    def __init__(self, known: Iterable[UsedGpus] = (), half_life_s: float = HALF_LIFE_S) -> None:
        self.half_life_s = half_life_s
        self.used: dict[str, UsedGpus] = {one.user: one for one in known}
        self.charged: dict[str, UsedGpus] = {}
        self.is_charged = True

    def of(self, user: str, now_s: float) -> float:
        """GPU seconds as they count now."""
        known = self.used.get(user)
        return 0.0 if known is None else known.gpu_s * _left(now_s - known.at_s, self.half_life_s)

    def truths_owed(self, user: str) -> int:
        """How many jobs in a row must tell the truth before a user's totals of steps are believed; 0 where they are."""
        known = self.used.get(user)
        return 0 if known is None else known.truths_owed

    def owe_truths(self, user: str, truths: int, now_s: float) -> None:
        """So many from now on."""
        known = self.used.get(user) or UsedGpus(user, 0.0, now_s)
        self.used[user] = self.charged[user] = known._replace(
            gpu_s=self.of(user, now_s), at_s=now_s, truths_owed=truths
        )

    def charge(self, job: Job, now_s: float) -> None:
        """A job leaves the GPUs it has held."""
        if not self.is_charged:
            return
        more_gpu_s = counted_gpu_s(job, now_s, self.half_life_s)
        if more_gpu_s > 0:
            user, month_s = job.spec.user, month_of(now_s)[0]
            known = self.used.get(user) or UsedGpus(user, 0.0, now_s)
            in_month = known.in_month(month_s) + gpu_s_since(job, month_s, now_s)
            self.used[user] = self.charged[user] = known._replace(
                gpu_s=self.of(user, now_s) + more_gpu_s, at_s=now_s, month_s=month_s, month_gpu_s=in_month
            )
