"""Orders by how long jobs are believed to run: all of it, or what is left of it. Jobs of unknown length come last.

A run time is steps times believed step time, at most the time limit; without a step time the time limit. With true step
times as beliefs they are the oracles of the textbooks (e.g. Silberschatz et al., section 5.3.2).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

from colane.core.cluster.derived import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import BoundOrder, ClassKey, Rank
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.times import RunTimes, kept_times
from colane.scheduling.engine.usual import UsualOrder
from colane.scheduling.engine.walks import Entry, Lines, by_gain, by_priority, priority_of, ranked

RankOf = Callable[[Job], Rank]


@dataclass(frozen=True, slots=True)
class Shortest(UsualOrder):
    """The job believed to run for the shortest time first."""

    def bind(self, draft: Draft, _pool: str) -> BoundOrder:
        times = RunTimes(draft)

        def rank(job: Job) -> Rank:
            run_s = times.run_s(job.effective)
            return priority_of(job.spec), inf if run_s is None else run_s

        lines = sorted_lines(draft, draft.view.derived(ByLength), rank)
        return BoundOrder(walk=ranked(draft, lines), rank=rank, displaces=by_priority)


@dataclass(frozen=True, slots=True)
class LeastRemaining:
    """The job with least left to do first (Salus's SRTF: Yu and Chowdhury, section 3.4, and the classic).

    Attributes:
        displaces_min: What a running job has left must be more than this many times a waiting one's to be displaced.
        quantum_s: A job is not displaced before it has run this long, so that starting it was worth it.
        counts_gpus: Whether what is left is time times GPUs, not time alone (SRSF, shortest remaining service first:
            Tiresias, Gu et al., NSDI 2019, section 2.3).
    """

    displaces_min: float = 1.25
    quantum_s: float = 60.0
    counts_gpus: bool = False

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        kept = draft.view.derived(LiveJobs).kept(draft.view, pool)
        left = partial(kept_times(draft, pool).left, draft.view)

        def rank(job: Job) -> Rank:
            known, weight = kept.of(job, left), job.gpu_count if self.counts_gpus else 1
            return priority_of(job.spec), inf if known is None else weight * known.at(job, draft.now_s)

        return BoundOrder(
            walk=ranked(draft, sorted_lines(draft, draft.view.derived(ByRemaining), self._held(rank))),
            rank=rank,
            displaces=partial(by_gain, self.displaces_min),
            quantum_s=self.quantum_s,
            gain_min=self.displaces_min,
            because="it has less left to do",
        )

    def _held(self, rank: Callable[[Job], Rank]) -> Callable[[Job], Rank]:
        """A parked job goes before those that have not so much less left that they would have taken its place."""

        def held(job: Job) -> Rank:
            priority, left = rank(job)
            return priority, left / self.displaces_min if job.home else left

        return held


@dataclass(slots=True)
class _Sorted:
    """The jobs of one class; their ranks hold while `beliefs` and `gpu_types` do."""

    beliefs: int
    gpu_types: int
    entries: list[Entry]
    ranks: dict[JobId, Rank]
    new: dict[JobId, None] = field(default_factory=dict)

    def take_in(self, view: ClusterView, rank: RankOf) -> None:
        """Give those that have come their places."""
        for job in self.new:
            self.ranks[job] = rank(view.job(job))
            insort(self.entries, (self.ranks[job], job))
        self.new.clear()

    def drop(self, job: JobId) -> None:
        """One has left the line."""
        self.new.pop(job, None)
        rank = self.ranks.pop(job, None)
        if rank is not None:
            del self.entries[bisect_left(self.entries, (rank, job))]


class ByLength(NodesMatterNot):
    """Classes that were asked for. The rank of a waiting job must only depend on what it is and what is believed.

    Args:
        by_user: Whether the jobs of each user have lines of their own.
    """

    def __init__(self, *, by_user: bool = False) -> None:
        self._by_user = by_user
        self._classes: dict[tuple[str, ClassKey], _Sorted] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and old.is_waiting and (line := self._line(old)) is not None:
            line.drop(old.id)
            if not line.ranks and not line.new:
                del self._classes[self._user(old), (old.spec.priority, old.need)]
        if new is not None and new.is_waiting and (line := self._line(new)) is not None:
            line.new[new.id] = None

    def _line(self, job: Job) -> _Sorted | None:
        asked = self._user(job), (job.spec.priority, job.need)
        return self._classes.get(asked) if job.spec.measurement_group is None else None

    def _user(self, job: Job) -> str:
        return job.spec.user if self._by_user else ""

    def entries(self, view: ClusterView, key: ClassKey, line: Line, rank: RankOf, user: str = "") -> Iterator[Entry]:
        """The jobs of a class by rank; those of a user, where each has its own lines."""
        known, gpu_types = self._classes.get((user, key)), len(view.gpu_types(key[1].pool))
        if known is None or (known.beliefs, known.gpu_types) != (view.beliefs.version, gpu_types):
            ranks = {job: rank(view.job(job)) for job in line}
            entries = sorted([(rank, job) for job, rank in ranks.items()])
            known = self._classes[user, key] = _Sorted(view.beliefs.version, gpu_types, entries, ranks)
        known.take_in(view, rank)
        return iter(known.entries)


class ByRemaining(ByLength):
    """The same by what is left of it."""


def sorted_lines(draft: Draft, index: ByLength, rank: RankOf) -> Lines:
    """Lines for orders in which the rank of a waiting job stays as it is; the index keeps them."""

    def by_rank(key: ClassKey, line: Line) -> Iterator[Entry]:
        return index.entries(draft.view, key, line, rank)

    return by_rank
