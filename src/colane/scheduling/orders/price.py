"""The order of the shadow price: least left first, each job's speed weighed by what a second of it saves all.

A second of work on a job ends it a second sooner, and gives as many GPU-seconds as it has GPUs to those behind it: that
is the derivative of the sum of all ends. A job waits for half a round of its equals on average, which is taken off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Final

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import BoundOrder, Rank
from colane.scheduling.engine.expected import Expected, had_s
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.waiting import all_work
from colane.scheduling.engine.walks import priority_of
from colane.scheduling.mechanisms.fairness.users import Users
from colane.scheduling.orders.length import ByLength, by_heads
from colane.scheduling.orders.value import across_users

EACH_MAX: Final = 1024
SAMPLE_MAX: Final = 256
"""Of more live jobs than the one, as many as the other are looked at to tell how many come after one."""

HALF: Final = 0.5
"""Rounds that a job waits for those of its own on average."""

LONG_MAX: Final = 3.0
"""A job counts as no more than so many times as long as all work takes, where the end of all is aimed at."""


def shadow_price(gpus: int, behind: float, of: int) -> float:
    """Job-seconds that a second of work saves on a job of so many GPUs that so many jobs come after, of so many GPUs.

    At least what it saves the job itself.
    """
    return max(1.0, 1.0 + gpus * (behind / max(1, of) - HALF))


@dataclass(frozen=True, slots=True)
class ByShadowPrice:
    """Jobs with least left first, times a power of their GPUs; see the module.

    Attributes:
        displaces_min: A gang takes the places of jobs with this many times as much left at least.
        move_s: And with so many GPU-seconds more.
        quantum_s: A job runs at least this long before another takes its place.
        gpus_power: Jobs go by what they have left times their GPUs to this power, as under `ByValue`.
        makespan_weight: How much it counts besides when all are through: 0 is the least mean time to the end, 0.1 to
            0.2 is near the best of both, 2 is the soonest end of all.
        awaits: None is stopped for a gang that would have a place before it could be through, as soon as every waiting
            job would have one (`scheduling.engine.openings`).
    """

    displaces_min: float = 1.25
    move_s: float = 60.0
    quantum_s: float = 60.0
    makespan_weight: float = 0.0
    gpus_power: float = 0.75
    awaits: bool = True

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        work = _WorkLeft(draft, pool, self.gpus_power)
        left_s, rank = work.left_s, work.rank
        prices = Prices(draft, pool, rank, left_s, self.makespan_weight)
        index = draft.view.derived(ByWork, self.gpus_power, len(draft.view.derived(Users).lines(pool)) > 1)
        walk = across_users(draft, pool, index, rank) if index.by_user else by_heads(draft, pool, index, rank)
        return BoundOrder(
            walk=walk, rank=rank, displaces=self._displaces, quantum_s=self.quantum_s, because="it has less left to do",
            weigh=prices.of, left_s=left_s, drains_s=all_work(draft, pool, left_s), awaits=self.awaits,
        )  # fmt: skip

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        return (waiting[1] + self.move_s) * self.displaces_min < running[1]


class _WorkLeft:
    """What jobs have left, for one plan: functions that need each other would leave a cycle behind once compiled."""

    def __init__(self, draft: Draft, pool: str, gpus_power: float) -> None:
        self._draft = draft
        self._gpus_power = gpus_power
        self._expected = Expected(draft, pool)

    def left_s(self, job: Job) -> float:
        """Seconds; of a job of unknown length as long as it has run."""
        known_s = self._expected.left_s(job)
        return had_s(job, self._draft.now_s) if known_s is None else known_s

    def rank(self, job: Job) -> Rank:
        """Its place in the order."""
        return priority_of(job.spec), self.left_s(job) * float(job.effective.gpus) ** self._gpus_power


class ByWork(ByLength):
    """Waiting jobs of classes that were asked for, by what is left of them times a power of their GPUs."""

    def __init__(self, gpus_power: float, by_user: bool) -> None:
        super().__init__(by_user=by_user)
        self.gpus_power = gpus_power
        self.by_user = by_user


class Prices:
    """What a second of work on each job of a pool saves all of them, for one plan.

    Args:
        draft: Where decisions are made.
        pool: Where.
        rank: Order of jobs.
        left_s: What a job has left.
        makespan_weight: See `ByShadowPrice`.
    """

    def __init__(
        self,
        draft: Draft,
        pool: str,
        rank: Callable[[Job], Rank],
        left_s: Callable[[Job], float],
        makespan_weight: float,
    ) -> None:
        self._draft = draft
        self._pool = pool
        self._rank = rank
        self._left_s = left_s
        self._makespan_weight = makespan_weight
        self._order: list[tuple[Rank, JobId]] | None = None
        self._every = 1
        self._gpus = 1
        self._work_s = 0.0
        self._known: dict[JobId, float] = {}

    def of(self, job: Job) -> float:
        """Of one job, at least 1."""
        price = self._known.get(job.id)
        if price is None:
            price = self._known[job.id] = self._price(job)
        return price

    def _price(self, job: Job) -> float:
        order = self._ordered()
        behind = self._every * (len(order) - bisect_right(order, (self._rank(job), job.id)))
        price = shadow_price(job.gpu_count, behind, self._gpus)
        if self._makespan_weight:
            price += self._makespan_weight * min(LONG_MAX, self._left_s(job) / self._work_s) ** 2
        return price

    def _ordered(self) -> list[tuple[Rank, JobId]]:
        """Jobs that run or wait, in order; of many every second, third, ..."""
        if self._order is None:
            live = self._draft.view.derived(LiveJobs)
            jobs = live.pool(self._pool).jobs
            self._every = ceil(len(jobs) / SAMPLE_MAX) if len(jobs) > EACH_MAX else 1
            seen = [job for job in islice(jobs.values(), 0, None, self._every) if _counts(job)]
            self._order = sorted([(self._rank(job), job.id) for job in seen])
            self._gpus = max(1, self._usable(live))
            work_s = self._every * sum([self._left_s(job) * job.gpu_count for job in seen], 0.0)
            self._work_s = max(1.0, work_s / self._gpus)
        return self._order

    def _usable(self, live: LiveJobs) -> int:
        """GPUs of the types that any of these jobs may use."""
        gpus = live.gpus(self._draft.view, self._pool)
        asked = {need.spec.gpu_type for need in live.pool(self._pool).needs.values() if need.spec.gpus}
        return sum([count for kind, count in gpus.items() if None in asked or kind in asked])


def _counts(job: Job) -> bool:
    return job.spec.gpus > 0 and (job.placement is not None or job.is_waiting)
