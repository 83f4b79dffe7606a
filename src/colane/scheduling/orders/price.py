"""The order of the shadow price: least left first, each job's speed weighed by what a second of it saves all.

A second of work on a job ends it a second sooner, and gives as many GPU-seconds as it has GPUs to those behind it: that
is the derivative of the sum of all ends. A job waits for half a round of its equals on average, which is taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.usual import RichOrder
from colane.scheduling.orders.live_ranks import CourseOf, LeftOf, LiveRanks, RankOf, RanksNow
from colane.scheduling.orders.value import ByValue, Objective

HALF: Final = 0.5
"""Rounds that a job waits for those of its own on average."""

LONG_MAX: Final = 3.0
"""A job counts as no more than so many times as long as all work takes, where the end of all is aimed at."""

MAKESPAN_WEIGHT: Final = 2.0
"""How much it counts when all are through where nothing else is aimed at (`ByShadowPrice.makespan_weight`)."""

OWED_MAX: Final = 3.0
"""Work for an owner who has had less than others counts no more than so many times as much as for these."""


def shadow_price(gpus: int, behind: float, of: int) -> float:
    """Job-seconds that a second of work saves on a job of so many GPUs that so many jobs come after, of so many GPUs.

    At least what it saves the job itself.
    """
    return max(1.0, 1.0 + gpus * (behind / max(1, of) - HALF))


def owed_price(had: float, usual: float) -> float:
    """How much a second of work on a job counts whose owner has had so much service, of so much on average.

    Between 1 and `OWED_MAX`: the less its owner has had the more, but never less than the work itself.
    """
    return max(1.0, min(OWED_MAX, usual / had if had > 0 else OWED_MAX))


@dataclass(frozen=True, slots=True)
class ByShadowPrice(RichOrder):
    """Jobs in the order of `ByValue`, weighed by what a second of work saves; see the module.

    Attributes:
        objective: What is aimed at. Under `jct` a second counts by what it saves all; under `makespan` the more the
            longer a job is, against all work; under `fair` the more the less its owner has had.
        displaces_min: A gang takes the places of jobs with this many times as much left at least.
        keeps_min: The same of a longer one under `makespan`, see `ByValue`.
        move_s: And with so many GPU-seconds more.
        quantum_s: A job runs at least this long before another takes its place.
        gpus_power: Jobs go by what they have left times their GPUs to this power, as under `ByValue`.
        makespan_weight: Under `jct`, how much it counts besides when all are through: 0 is the least mean time to the
            end, 0.1 to 0.2 is near the best of both, 2 is the soonest end of all in this order.
        awaits: None is stopped for a gang that would have a place before it could be through, as soon as every waiting
            job would have one (`scheduling.engine.openings`).
    """

    objective: Objective = Objective.JCT
    displaces_min: float = 1.25
    keeps_min: float = 10.0
    move_s: float = 60.0
    quantum_s: float = 60.0
    makespan_weight: float = 0.0
    gpus_power: float = 0.75
    awaits: bool = True

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        order = ByValue(
            self.objective, self.displaces_min, self.keeps_min, self.move_s, self.quantum_s, self.awaits,
            self.gpus_power,
        )  # fmt: skip
        weigher = partial(_weigher, draft, pool, self.objective, self.makespan_weight, self.gpus_power)
        return order.weighed(
            draft, pool, weigher, exchanges=self.objective is Objective.JCT,
            weighs_first_most=self.objective is not Objective.JCT or not self.makespan_weight,
        )  # fmt: skip


def _weigher(
    draft: Draft,
    pool: str,
    objective: Objective,
    makespan_weight: float,
    gpus_power: float,
    rank: RankOf,
    left_s: LeftOf,
    course: CourseOf,
) -> Callable[[Job], float]:
    ranks = partial(draft.view.derived(LiveRanks, objective, gpus_power).at, draft.view, pool, rank, left_s, course)
    return Prices(draft, pool, rank, left_s, makespan_weight, objective, ranks).of


class Prices:
    """What a second of work on each job of a pool saves all of them, for one plan.

    Args:
        draft: Where decisions are made.
        pool: Where.
        rank: Order of jobs.
        left_s: What a job has left.
        makespan_weight: See `ByShadowPrice`.
        objective: Likewise.
        ranking: Ranks all of them.
    """

    def __init__(
        self,
        draft: Draft,
        pool: str,
        rank: RankOf,
        left_s: LeftOf,
        makespan_weight: float,
        objective: Objective,
        ranking: Callable[[], RanksNow],
    ) -> None:
        self._draft = draft
        self._pool = pool
        self._rank = rank
        self._left_s = left_s
        self._objective = objective
        self._makespan_weight = MAKESPAN_WEIGHT if objective is Objective.MAKESPAN else makespan_weight
        self._ranking = ranking
        self._ranked: RanksNow | None = None
        self._gpus = 1
        self._work_s = 0.0
        self._usual: float | None = None
        self._known: dict[JobId, float] = {}

    def of(self, job: Job) -> float:
        """Of one job, at least 1."""
        price = self._known.get(job.id)
        if price is None:
            price = self._known[job.id] = self._price(job)
        return price

    def _price(self, job: Job) -> float:
        if self._objective is Objective.FAIR:
            return owed_price(self._rank(job)[-1], self._usual_service())
        ranked, price = self._all_ranked(), 1.0
        if self._objective is Objective.JCT:
            price = shadow_price(job.gpu_count, ranked.behind(self._rank(job)), self._gpus)
        if self._makespan_weight:
            price += self._makespan_weight * min(LONG_MAX, self._length_s(job) / self._work_s) ** 2
        return price

    def _length_s(self, job: Job) -> float:
        """What it has left; where the longest go first as much as says its place, which a parked one holds."""
        return -self._rank(job)[-1] if self._objective is Objective.MAKESPAN else self._left_s(job)

    def _all_ranked(self) -> RanksNow:
        """Jobs that run or wait, in order."""
        if self._ranked is None:
            self._ranked = self._ranking()
            self._gpus = max(1, self._usable(self._draft.view.derived(LiveJobs)))
            self._work_s = max(1.0, self._ranked.work_s / self._gpus)
        return self._ranked

    def _usual_service(self) -> float:
        """What the owners of these jobs have had on average, each counted for each job."""
        if self._usual is None:
            jobs = self._draft.view.derived(LiveJobs).pool(self._pool).jobs
            had = [self._rank(job)[-1] for job in jobs.values() if _counts(job)]
            self._usual = sum(had) / max(1, len(had))
        return self._usual

    def _usable(self, live: LiveJobs) -> int:
        """GPUs of the types that any of these jobs may use."""
        gpus = live.gpus(self._draft.view, self._pool)
        asked = {need.spec.gpu_type for need in live.pool(self._pool).needs.values() if need.spec.gpus}
        return sum([count for kind, count in gpus.items() if None in asked or kind in asked])


def _counts(job: Job) -> bool:
    return job.spec.gpus > 0 and (job.placement is not None or job.is_waiting)
