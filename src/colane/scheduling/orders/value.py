"""The order of most value: by the weight of a job's speed, which is what its owner or the cluster aims at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from colane.core.cluster.draft import Draft
from colane.core.reducers.sharing_domains import sharing_domain
from colane.model.job import Job
from colane.model.lane import ShareBetween
from colane.scheduling.engine.contracts import BoundOrder, Rank, gpu_group
from colane.scheduling.engine.expected import Expected, had_s
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.times import attained_gpu_s
from colane.scheduling.engine.waiting import SHARED_MAX, all_work
from colane.scheduling.engine.walks import each_ranked, priority_of, ranked
from colane.scheduling.orders.length import ByLength, sorted_lines


class Objective(StrEnum):
    """What is aimed at."""

    JCT = "jct"
    """The least mean time from submission to end: a job's speed weighs one over what it has left."""
    MAKESPAN = "makespan"
    """The earliest end of all: those with most left first."""
    FAIR = "fair"
    """Equal service for users, or groups where jobs name one: the one that has had least first."""


@dataclass(frozen=True, slots=True)
class ByValue:
    """Jobs whose speed weighs most first.

    Attributes:
        objective: What is aimed at.
        displaces_min: Under `jct`, a job takes another's place if it weighs this many times as much.
        keeps_min: Under `makespan` a longer job takes a shorter one's place if it has so many times as much left, so
            that those of much the same length do not change places for ever.
        move_s: Besides, so much must be gained that preemption is worth it.
        quantum_s: A job runs at least this long before another takes its place.
        awaits: Under `jct` none is stopped for a job that would have a place before it could be through, as soon as
            every waiting job would have one (`scheduling.engine.openings`).
    """

    objective: Objective = Objective.JCT
    displaces_min: float = 1.25
    keeps_min: float = 10.0
    move_s: float = 60.0
    quantum_s: float = 60.0
    awaits: bool = True

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        expected = Expected(draft, pool)
        rank = {
            Objective.JCT: self._by_left,
            Objective.MAKESPAN: self._by_most_left,
            Objective.FAIR: self._by_service,
        }[self.objective](draft, pool, expected)
        is_static = self.objective is not Objective.FAIR
        index = draft.view.derived(ByLeft, self.objective) if is_static else None
        held = self._held(rank)
        lines = each_ranked(draft, held) if index is None else sorted_lines(draft, index, held)

        def left_s(job: Job) -> float:
            known_s = expected.left_s(job)
            return had_s(job, draft.now_s) if known_s is None else known_s

        return BoundOrder(
            walk=ranked(draft, lines), rank=rank, displaces=self._displaces, quantum_s=self.quantum_s,
            because=BECAUSE[self.objective], weigh=self._weigh(left_s), left_s=left_s,
            soonest_end_s=soonest_end(draft, pool, left_s) if self.objective is Objective.MAKESPAN else None,
            drains_s=None if self.objective is Objective.MAKESPAN else all_work(draft, pool, left_s),
            awaits=self.awaits and self.objective is Objective.JCT,
        )  # fmt: skip

    def _weigh(self, left_s: Callable[[Job], float]) -> Callable[[Job], float]:
        if self.objective is Objective.FAIR:
            return gpu_group
        if self.objective is Objective.MAKESPAN:
            return left_s
        return lambda job: 1 / max(1.0, left_s(job))

    @staticmethod
    def _by_left(draft: Draft, _pool: str, expected: Expected) -> Callable[[Job], Rank]:
        def rank(job: Job) -> Rank:
            left_s = expected.left_s(job)
            return priority_of(job.spec), had_s(job, draft.now_s) if left_s is None else left_s

        return rank

    @staticmethod
    def _by_most_left(_draft: Draft, _pool: str, expected: Expected) -> Callable[[Job], Rank]:
        def rank(job: Job) -> Rank:
            left_s = expected.left_s(job)
            return priority_of(job.spec), 0.0 if left_s is None else -left_s

        return rank

    @staticmethod
    def _by_service(draft: Draft, pool: str, _expected: Expected) -> Callable[[Job], Rank]:
        had: Counter[str] = Counter()
        for job in draft.view.jobs.values():
            if job.spec.pool == pool:
                had[sharing_domain(job.spec, ShareBetween.GROUP)] += int(attained_gpu_s(job, draft.now_s))

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), had[sharing_domain(job.spec, ShareBetween.GROUP)] / job.spec.weight

        return rank

    def _held(self, rank: Callable[[Job], Rank]) -> Callable[[Job], Rank]:
        """A parked job goes before those that would not have taken its place while it ran (`_displaces`)."""
        factor = self.keeps_min if self.objective is Objective.MAKESPAN else 1 / self.displaces_min

        def held(job: Job) -> Rank:
            priority, amount = rank(job)
            return priority, amount * factor - self.move_s if job.home else amount

        return held

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        if self.objective is Objective.MAKESPAN:
            return -waiting[1] > -running[1] * self.keeps_min + self.move_s
        return (waiting[1] + self.move_s) * self.displaces_min < running[1]


def soonest_end(draft: Draft, pool: str, left_s: Callable[[Job], float]) -> Callable[[], float]:
    """In how many seconds all jobs of a pool could have ended at best, worked out when first asked for.

    The one with most left alone, or all work on all GPUs in the best sharing, whichever takes longer.
    """
    known: list[float] = []

    def end_s() -> float:
        if not known:
            jobs = [job for job in draft.view.jobs.values() if job.spec.pool == pool and job.spec.gpus]
            gpus = sum(draft.view.derived(LiveJobs).gpus(draft.view, pool).values())
            work_s = sum([left_s(job) * job.gpu_count for job in jobs]) / (SHARED_MAX * max(1, gpus))
            known.append(max([work_s, *[left_s(job) for job in jobs]]))
        return known[0]

    return end_s


BECAUSE = {
    Objective.JCT: "it has less left to do",
    Objective.MAKESPAN: "it has more left to do",
    Objective.FAIR: "its owner has had less",
}


class ByLeft(ByLength):
    """Waiting jobs of classes that were asked for, by what is left of them."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
