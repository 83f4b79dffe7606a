"""Splits jobs that are slower together than one after another: one of them waits.

Jobs share by prediction, and may turn out slower. A job that can be stopped moves to a better place where
there is one (`migration`); else it remains with its co-runners, as one that cannot be stopped does anyway. Where
one ends sooner itself if it waits until the others are through, it does: then all there end sooner. It leaves by the
cheapest means: parked, it goes on there; stopped, wherever that then pays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import (
    Facts,
    Means,
    SplitReasons,
    is_untouched,
    may_split_off,
    means_of,
    split_off,
    stopped_s,
)
from colane.model.hardware import GpuId
from colane.model.job import Job
from colane.model.reason import Why
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import ran_since_s
from colane.scheduling.engine.times import Expected
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, others
from colane.scheduling.mechanisms.sharing.sharing_values import BURDEN_MIN, JOBS_PER_GPU_MAX, SharingValues

SLOWER_TOGETHER: Final = SplitReasons(Why.SPLIT, Why.SPLIT_BY_STOPPING)


@dataclass(frozen=True, slots=True)
class Splitting(UsualMoving):
    """Parks or stops one of the jobs that share at a loss.

    Attributes:
        parts: Whether any jobs are separated.
    """

    parts: bool = True

    def plan(self, context: SchedulingContext) -> None:
        """Let one of the jobs on a GPU wait that would be faster without it."""
        if self.parts:
            _Parter(context).plan()


class _Burden(NamedTuple):
    """A job that had better wait: how the sum falls without it, what it has left, and for how long the others have."""

    loss: float
    left_s: float
    job: Job
    away_s: float


class _Parter:
    def __init__(self, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._queue = context.queue
        self._values = SharingValues(context.draft, context.pool, JOBS_PER_GPU_MAX - 1, context.queue)
        self._expected = Expected(context.draft, context.pool)

    def plan(self) -> None:
        for gpu_group in self._values.burdened():
            for gpu in list(gpu_group.gpus):
                load = self._draft.load(gpu)
                if is_untouched(self._draft, load):
                    self._part(gpu_group, gpu, load)

    def _part(self, gpu_group: GpuGroup, gpu: GpuId, load: GpuLoad) -> None:
        """Let the job wait that burdens the others most; of equal ones the one with most left."""
        found = list(self._burdens(gpu_group, load))
        if not found:
            return
        first = min(found, key=lambda burden: (burden.loss, -burden.left_s, burden.job.id))
        total, job = self._values.total(gpu_group.site, gpu_group.members), first.job
        facts: Facts = {"gpu": str(gpu), "sum": total, "without": total - first.loss}
        split_off(self._draft, load, job, facts, SLOWER_TOGETHER, away_s=first.away_s)

    def _burdens(self, gpu_group: GpuGroup, load: GpuLoad) -> Iterator[_Burden]:
        """Jobs that end sooner by waiting until the others are through."""
        jobs = [self._draft.view.job(booking.job) for booking in load.bookings]
        left_s = [self._expected.rest_s(job) for job in jobs]
        for place, job in enumerate(jobs):
            loss = self._values.loss(gpu_group, place)
            if loss >= -BURDEN_MIN or not self._may_wait(job):
                continue
            rest = others(gpu_group.members, place)
            away_s = (sum(left_s) - left_s[place]) / self._values.total(gpu_group.site, rest)
            parks = means_of(self._draft, job, away_s=away_s) is Means.PARK
            waits_s = away_s if parks else away_s + stopped_s(self._draft.view, job)
            # alone after the others, against beside them: what it has left is done at its ratio of its speed alone
            ratio = self._values.ratio(gpu_group.site, gpu_group.members[place], rest)
            if left_s[place] > ratio * (left_s[place] + waits_s) and not self._comes_first(job, load):
                yield _Burden(loss, left_s[place], job, away_s)

    def _comes_first(self, job: Job, load: GpuLoad) -> bool:
        """Whether it would take the place of one of the others, if it waited."""
        mine, jobs = self._queue.rank(job), self._draft.view.jobs
        return any(self._queue.displaces(mine, self._queue.rank(jobs[other])) for other in load.jobs if other != job.id)

    def _may_wait(self, job: Job) -> bool:
        has_run = ran_since_s(job) + self._queue.quantum_s <= self._draft.now_s
        return has_run and may_split_off(self._draft, job)
