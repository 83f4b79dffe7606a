"""The order of most value: by the weight of a job's speed, which is what its owner or the cluster aims at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import heapify, heappop, heapreplace

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId, JobSpec
from colane.model.lane import ShareBetween, sharing_domain
from colane.scheduling.engine.contracts import (
    BoundOrder,
    Classes,
    ClassKey,
    FirstOf,
    Firsts,
    QueueIterator,
    Rank,
    gpu_group,
    no_line,
)
from colane.scheduling.engine.expected import Course, Expected
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.times import attained_gpu_s
from colane.scheduling.engine.usual import RichOrder
from colane.scheduling.engine.waiting import SHARED_MAX, all_work
from colane.scheduling.engine.walks import Entry, each_ranked, priority_of, ranked
from colane.scheduling.mechanisms.fairness.users import Users
from colane.scheduling.orders.length import ByLength, by_heads


class Objective(StrEnum):
    """What is aimed at."""

    JCT = "jct"
    """The least mean time from submission to end: a job's speed weighs one over what it has left."""
    MAKESPAN = "makespan"
    """The earliest end of all: those with most left first."""
    FAIR = "fair"
    """Equal service for users, or groups where jobs name one: the one that has had least first."""


Weigher = Callable[
    [Callable[[Job], Rank], Callable[[Job], float], Callable[[Job], Course | None]], Callable[[Job], float]
]
"""Makes how much each job's speed counts: of how jobs are ranked, what they have left, in seconds, and how it falls."""


@dataclass(frozen=True, slots=True)
class ByValue(RichOrder):
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
        gpus_power: Under `jct` jobs go by the time they have left, times their GPUs to this power. By time alone (0)
            wide gangs keep many others waiting, by time times GPUs (1, SRSF: Tiresias, Gu et al., NSDI 2019, section
            2.3) one narrow job keeps a gang waiting beside GPUs that those behind it have (decision 34).
    """

    objective: Objective = Objective.JCT
    displaces_min: float = 1.25
    keeps_min: float = 10.0
    move_s: float = 60.0
    quantum_s: float = 60.0
    awaits: bool = True
    gpus_power: float = 0.75

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        return self.weighed(draft, pool, self._weigh)

    def weighed(
        self,
        draft: Draft,
        pool: str,
        weigher: Weigher,
        *,
        exchanges: bool = False,
        weighs_first_most: bool = False,
    ) -> BoundOrder:
        """The same order, with weights of its own: those follow from ranks, and from what jobs have left."""
        expected = Expected(draft, pool)
        left_s = expected.rest_s
        rank = {
            Objective.JCT: self._by_left,
            Objective.MAKESPAN: self._by_most_left,
            Objective.FAIR: self._by_service,
        }[self.objective](draft, pool, expected)
        is_static = self.objective is not Objective.FAIR
        held = self._held(rank)
        walk: Callable[[Callable[[], Classes]], QueueIterator]
        firsts: Callable[[FirstOf], Firsts] | None = None
        line: Callable[[ClassKey], Iterator[Entry]] = no_line
        if not is_static:
            walk = ranked(draft, each_ranked(draft, held))
        elif len(draft.view.derived(Users).lines(pool)) > 1:
            walk = across_users(draft, pool, draft.view.derived(ByLeft, self.objective, self.gpus_power, True), held)
        else:
            index = draft.view.derived(ByLeft, self.objective, self.gpus_power)
            walk = by_heads(draft, pool, index, held)
            firsts = partial(index.firsts, draft.view, pool, held)
            line = partial(_line, draft, pool, index, held)

        return BoundOrder(
            walk=walk, rank=rank, displaces=self._displaces, quantum_s=self.quantum_s,
            gain_min=self.displaces_min, because=BECAUSE[self.objective], left_s=left_s,
            weigh=weigher(held, left_s, expected.course), firsts=firsts, line=line,
            weighs_first_most=weighs_first_most,
            soonest_end_s=soonest_end(draft, pool, left_s) if self.objective is Objective.MAKESPAN else None,
            drains_s=None if self.objective is Objective.MAKESPAN else all_work(draft, pool, left_s),
            awaits=self.awaits and self.objective is Objective.JCT, exchanges=exchanges, place=held,
        )  # fmt: skip

    def _weigh(
        self,
        _rank: Callable[[Job], Rank],
        left_s: Callable[[Job], float],
        _course: Callable[[Job], Course | None],
    ) -> Callable[[Job], float]:
        if self.objective is Objective.FAIR:
            return gpu_group
        if self.objective is Objective.MAKESPAN:
            return left_s
        return lambda job: 1 / max(1.0, left_s(job))

    def _by_left(self, _draft: Draft, _pool: str, expected: Expected) -> Callable[[Job], Rank]:
        power = self.gpus_power

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), expected.rest_s(job) * float(job.effective.gpus) ** power

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


def _line(draft: Draft, pool: str, index: ByLeft, rank: Callable[[Job], Rank], key: ClassKey) -> Iterator[Entry]:
    return index.entries(draft.view, key, draft.view.queue(pool).classes[key], rank)


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

    def __init__(self, objective: Objective, gpus_power: float, by_user: bool = False) -> None:
        super().__init__(by_user=by_user)
        self.objective = objective
        self.gpus_power = gpus_power


Head = tuple[Rank, int, JobId, int]
"""Rank of the next job of a line, GPUs that its user holds, the job, and which line it is."""


class AcrossUsers:
    """Waiting jobs by rank, then by what their users hold, what they take in this very plan included.

    Where nothing tells one job from another, as while the lengths of all are unknown, order of arrival would let one
    user with thousands of queued jobs keep every other waiting. Jobs of one user keep their order.

    Args:
        draft: Where decisions are made.
        pool: The pool; only what is held of it counts.
        worth: Classes worth looking at.
        index: Has the lines of each user.
        rank: Of a waiting job.
    """

    def __init__(self, draft: Draft, pool: str, worth: Classes, index: ByLength, rank: Callable[[Job], Rank]) -> None:
        users = draft.view.derived(Users)
        self._jobs = draft.view.jobs
        self._left: set[ClassKey] = set()
        self._key: ClassKey | None = None
        self._held: dict[str, int] = {}
        self._lines: list[tuple[str, ClassKey, Iterator[Entry]]] = []
        heads: list[Head] = []
        for user, lines in users.lines(pool).items():
            self._held[user] = users.taken(pool, user)[0]
            for key, line in lines.items():
                entries = index.entries(draft.view, key, line, rank, user) if key in worth else iter(())
                first = next(entries, None)
                if first is not None:
                    heads.append((first[0], self._held[user], first[1], len(self._lines)))
                    self._lines.append((user, key, entries))
        heapify(heads)
        self._heads = heads

    def __iter__(self) -> Iterator[Job]:
        heads = self._heads
        while heads:
            rank, held, job, number = heads[0]
            user, key, entries = self._lines[number]
            if key in self._left:
                heappop(heads)
                continue
            if self._held[user] > held:  # it has been given GPUs since this was filed
                heapreplace(heads, (rank, self._held[user], job, number))
                continue
            self._key = key
            yield self._jobs[job]
            following = None if key in self._left else next(entries, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0], self._held[user], following[1], number))

    def skip_class(self) -> None:
        if self._key is not None:
            self._left.add(self._key)

    def took(self, job: Job, spec: JobSpec) -> None:
        self._held[job.spec.user] += spec.gpus


def across_users(
    draft: Draft, pool: str, index: ByLength, rank: Callable[[Job], Rank]
) -> Callable[[Callable[[], Classes]], AcrossUsers]:
    """Makes walks across users."""

    def walk(worth: Callable[[], Classes]) -> AcrossUsers:
        return AcrossUsers(draft, pool, worth(), index, rank)

    return walk
