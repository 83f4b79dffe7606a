"""Parting jobs that are slower together than one after another: one of them is parked, and loses no step.

Companies are made by what is foreseen, and may turn out worse. A job that can be stopped goes elsewhere
(`rearranging`); one that cannot is bound to its GPU, and to whoever else is. Where it ends sooner itself if it waits
until the others are through, it does: then all there end sooner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from colane.core.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job
from colane.model.reason import Reason, Why
from colane.policies.companies import BURDEN_MIN, COMPANY_MAX, CompanyValues
from colane.policies.company_places import is_untouched
from colane.policies.expected import Expected, had_s
from colane.policies.indexes.companions import others
from colane.policies.indexes.groups import Alike
from colane.policies.indexes.live import ran_since_s
from colane.policies.means import is_movable, may_leave
from colane.policies.parts import Desk


@dataclass(frozen=True, slots=True)
class Parting:
    """See the module.

    Attributes:
        parts: Whether anybody is parted.
    """

    parts: bool = True

    @property
    def goes_first(self) -> bool:
        """Those that wait are served before."""
        return False

    def plan(self, desk: Desk) -> None:
        """Park one of each company that would be faster without it."""
        if self.parts:
            _Parter(desk).plan()


class _Parter:
    def __init__(self, desk: Desk) -> None:
        self._draft = desk.draft
        self._queue = desk.queue
        self._values = CompanyValues(desk.draft, desk.pool, COMPANY_MAX - 1, desk.queue)
        self._expected = Expected(desk.draft, desk.pool)

    def plan(self) -> None:
        """See `Parting`."""
        for alike in self._values.burdened():
            for gpu in list(alike.gpus):
                load = self._draft.load(gpu)
                if is_untouched(self._draft, load):
                    self._part(alike, gpu, load)

    def _part(self, alike: Alike, gpu: GpuId, load: GpuLoad) -> None:
        """Park who burdens the others most; of equal ones who has most left."""
        bound = list(self._bound(alike, load))
        if not bound:
            return
        loss, _, job = min(bound, key=lambda entry: (entry[0], entry[1], entry[2].id))
        total = self._values.total(alike.site, alike.members)
        facts: dict[str, str | int | float] = {"gpu": str(gpu), "sum": total, "without": total - loss}
        self._draft.park(job, Reason(Why.PARTED, facts, tuple([other for other in load.jobs if other != job.id])))

    def _bound(self, alike: Alike, load: GpuLoad) -> Iterator[tuple[float, float, Job]]:
        """Who goes nowhere else and ends sooner by waiting: how the sum falls without it, what it has left, negated."""
        jobs = [self._draft.view.job(booking.job) for booking in load.bookings]
        left_s = [self._left_s(job) for job in jobs]
        for place, job in enumerate(jobs):
            loss = self._values.loss(alike, place)
            if loss >= -BURDEN_MIN or job.spec.preemptible or not self._may_wait(job):
                continue
            if self._ends_sooner(alike, place, left_s) and not self._comes_first(job, load):
                yield loss, -left_s[place], job

    def _ends_sooner(self, alike: Alike, place: int, left_s: Sequence[float]) -> bool:
        """Whether one of them ends sooner alone once the others are through."""
        rest = others(alike.members, place)
        ratio = self._values.ratio(alike.site, alike.members[place], rest)
        first_s = (sum(left_s) - left_s[place]) / self._values.total(alike.site, rest)
        return left_s[place] > ratio * (left_s[place] + first_s)

    def _left_s(self, job: Job) -> float:
        left_s = self._expected.left_s(job)
        return had_s(job, self._draft.now_s) if left_s is None else left_s

    def _comes_first(self, job: Job, load: GpuLoad) -> bool:
        """Whether it would take the place of one of the others, if it waited."""
        mine, jobs = self._queue.rank(job), self._draft.view.jobs
        return any(self._queue.displaces(mine, self._queue.rank(jobs[other])) for other in load.jobs if other != job.id)

    def _may_wait(self, job: Job) -> bool:
        has_run = ran_since_s(job) + self._queue.quantum_s <= self._draft.now_s
        return has_run and is_movable(job) and may_leave(self._draft.view, job)
