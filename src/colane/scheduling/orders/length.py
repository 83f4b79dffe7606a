"""Orders by how long jobs are believed to run: all of it, or what is left of it. Jobs of unknown length come last.

A run time is steps times believed step time, at most the time limit; without a step time the time limit. With true step
times as beliefs they are the oracles of the textbooks (e.g. Silberschatz et al., section 5.3.2).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import islice
from math import inf
from typing import Final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobId, JobSpec
from colane.scheduling.engine.contracts import (
    BoundOrder,
    Classes,
    ClassKey,
    FirstOf,
    Firsts,
    Head,
    QueueIterator,
    Rank,
)
from colane.scheduling.engine.live import LiveJobs, once
from colane.scheduling.engine.times import RunTimes, kept_times
from colane.scheduling.engine.usual import UsualOrder
from colane.scheduling.engine.walks import Entry, Lines, by_gain, by_priority, priority_of, ranked

RankOf = Callable[[Job], Rank]


@dataclass(frozen=True, slots=True)
class Shortest(UsualOrder):
    """The job believed to run for the shortest time first."""

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        times = RunTimes(draft)

        def rank(job: Job) -> Rank:
            run_s = times.run_s(job.effective)
            return priority_of(job.spec), inf if run_s is None else run_s

        walk = by_heads(draft, pool, draft.view.derived(ByLength), rank)
        return BoundOrder(walk=walk, rank=rank, displaces=by_priority)


@dataclass(frozen=True, slots=True)
class LeastRemaining:
    """The job with least left to do first (Salus's SRTF: Yu and Chowdhury, section 3.4, and the classic)."""

    # what a running job has left must be more than this many times a waiting one's to be displaced
    displaces_min: float = 1.25
    quantum_s: float = 60.0  # a job is not displaced before it has run this long, so that starting it was worth it
    # whether what is left is time times GPUs, not time alone (SRSF, shortest remaining service first: Tiresias, Gu et
    # al., NSDI 2019, section 2.3)
    counts_gpus: bool = False

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        kept = draft.view.derived(LiveJobs).kept(draft.view, pool)
        left = partial(kept_times(draft, pool).left, draft.view)

        def rank(job: Job) -> Rank:
            known, weight = once(kept.jobs, job, left), job.gpu_count if self.counts_gpus else 1
            return priority_of(job.spec), inf if known is None else weight * known.at(job, draft.now_s)

        return BoundOrder(
            walk=by_heads(draft, pool, draft.view.derived(ByRemaining), self._held(rank)),
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

    beliefs: tuple[int, int]
    gpu_types: int
    new: dict[JobId, None]
    entries: list[Entry] = field(default_factory=list)
    ranks: dict[JobId, Rank] = field(default_factory=dict)
    alike: dict[JobId, None] = field(default_factory=dict)  # those of them that have one rank,
    rank: Rank | None = None  # this one; None where it is to be worked out

    def rank_anew(self, beliefs: tuple[int, int], gpu_types: int) -> None:
        """Something else is believed of them."""
        self.beliefs, self.gpu_types, self.rank = beliefs, gpu_types, None
        self.new = {**self.new, **dict.fromkeys([job for job in self.ranks if job not in self.alike])}
        self.entries, self.ranks = [], {}

    def take_in(self, view: ClusterView, rank: RankOf, is_alike: Callable[[Job], bool]) -> None:
        """Give those that have come their places."""
        if self.rank is None and self.alike:
            view.work(2)  # a family's law is worked out, too
            self.rank = rank(view.job(next(iter(self.alike))))
            self._put(dict.fromkeys(self.alike, self.rank))
        while new := view.portion(self.new):
            ranks = dict[JobId, Rank]()
            for number in new:
                job = view.job(number)
                if is_alike(job):
                    self.alike[number] = None
                    if self.rank is None:
                        self.rank = rank(job)
                    ranks[number] = self.rank
                else:
                    ranks[number] = rank(job)
            self._put(ranks)

    def _put(self, ranks: dict[JobId, Rank]) -> None:
        self.ranks.update(ranks)
        if len(ranks) > len(self.entries):
            self.entries = sorted([*self.entries, *[(rank, job) for job, rank in ranks.items()]])
        else:
            for job, its_rank in ranks.items():
                insort(self.entries, (its_rank, job))

    def drop(self, job: JobId) -> None:
        """One has left the line."""
        self.new.pop(job, None)
        self.alike.pop(job, None)
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
        self._heads: dict[str, Firsts] = {}
        self._firsts: dict[str, Firsts] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        for job in (old, new) if self._heads or self._firsts else ():
            if job is not None and job.is_waiting:
                self._tell(job)
        if old is not None and old.is_waiting and (line := self._line(old)) is not None:
            line.drop(old.id)
            if not line.ranks and not line.new and not line.alike:
                del self._classes[self._user(old), (old.spec.priority, old.need)]
        if new is not None and new.is_waiting and (line := self._line(new)) is not None:
            line.new[new.id] = None

    def _tell(self, job: Job) -> None:
        """A job of a class came or went."""
        key, pool = (job.spec.priority, job.need), job.need.pool
        heads, firsts = self._heads.get(pool), self._firsts.get(pool)
        if heads is not None:
            heads.stale[key] = None
        if firsts is not None:
            firsts.stale[key] = None

    def _line(self, job: Job) -> _Sorted | None:
        asked = self._user(job), (job.spec.priority, job.need)
        return self._classes.get(asked) if job.spec.measurement_group is None else None

    def _user(self, job: Job) -> str:
        return job.spec.user if self._by_user else ""

    def entries(self, view: ClusterView, key: ClassKey, line: Line, rank: RankOf, user: str = "") -> Iterator[Entry]:
        """The jobs of a class by rank; those of a user, where each has its own lines."""
        known, gpu_types = self._classes.get((user, key)), len(view.gpu_types(key[1].pool))
        believed = view.beliefs.speeds_version, self.judged(view, key)
        if known is None:
            known = self._classes[user, key] = _Sorted(believed, gpu_types, dict.fromkeys(line))
        elif (known.beliefs, known.gpu_types) != (believed, gpu_types):
            known.rank_anew(believed, gpu_types)
        known.take_in(view, rank, partial(self.is_alike, view))
        return iter(known.entries)

    def is_alike(self, _view: ClusterView, _job: Job) -> bool:
        """Whether a waiting job has the same rank as all others of its class of which this is true."""
        return False

    def judged(self, _view: ClusterView, _key: ClassKey) -> int:
        """Since which version ranks of a class hold, as far as they depend on what is learnt of lengths."""
        return 0

    def judged_at_all(self, _view: ClusterView) -> int:
        """The same of all classes: while it stays none of them is judged otherwise."""
        return 0

    def heads(self, view: ClusterView, pool: str, rank: RankOf) -> list[Head]:
        """The first job of every class of a pool, by rank: only classes are looked at that have changed."""
        return self._look(self._heads, view, pool, rank, FIRST_ALONE).in_order

    def firsts(self, view: ClusterView, pool: str, rank: RankOf, first_of: FirstOf) -> Firsts:
        """The first jobs of every class of a pool; which ones are asked for is always the same for one policy."""
        return self._look(self._firsts, view, pool, rank, first_of)

    def _look(
        self, all_known: dict[str, Firsts], view: ClusterView, pool: str, rank: RankOf, first_of: FirstOf
    ) -> Firsts:
        asked, classes = (view.beliefs.speeds_version, len(view.gpu_types(pool))), view.queue(pool).classes
        known, judged = all_known.get(pool), self.judged_at_all(view)
        if known is None or (known.beliefs, known.gpu_types) != asked:
            known = all_known[pool] = Firsts(*asked, judged, stale=dict.fromkeys(classes))
        elif known.judged != judged:  # classes whose jobs are judged otherwise than before are looked at again
            families, last = view.beliefs.lengths.judged_since(known.judged), known.judged
            if families is None:
                found = [key for key in classes if self.judged(view, key) > last]
            else:
                found = [key for key in classes if key[1].family in families]
            known.stale.update(dict.fromkeys(found))
            known.judged = judged
        changed = dict[ClassKey, list[Head]]()
        try:
            for key in list(known.stale):
                left = classes.get(key)
                if first_of.serves(key[1]):
                    entries = iter(()) if left is None else self.entries(view, key, left, rank)
                    changed[key] = first_of.of(view.jobs, entries, key)
                elif left is None:
                    known.others.pop(key, None)
                else:
                    known.others[key] = None
                del known.stale[key]
        finally:  # a plan that is given up leaves the rest to the next one
            if len(changed) * FEW < len(known.by_class):
                for key, heads in changed.items():
                    known.put(key, heads)
            else:
                known.by_class = {key: heads for key, heads in {**known.by_class, **changed}.items() if heads}
                known.in_order = sorted([head for heads in known.by_class.values() for head in heads])
        return known


FIRST_ALONE: Final = FirstOf(lambda _need: True, lambda _job: 0, 1)


class ByRemaining(ByLength):
    """The same by what is left of it."""


def sorted_lines(draft: Draft, index: ByLength, rank: RankOf) -> Lines:
    """Lines for orders in which the rank of a waiting job stays as it is; the index keeps them."""

    def by_rank(key: ClassKey, line: Line) -> Iterator[Entry]:
        return index.entries(draft.view, key, line, rank)

    return by_rank


class ByHeads:
    """Waiting jobs by rank, equal ranks by arrival; a class is looked at when its first job's turn has come.

    Args:
        jobs: Live jobs.
        heads: The first job of every class, in order.
        line: Gives the jobs of a class in order.
        worth: Classes to look at; None: all of them.
    """

    def __init__(
        self,
        jobs: Mapping[JobId, Job],
        heads: list[Head],
        line: Callable[[ClassKey], Iterator[Entry]],
        worth: Classes | None,
    ) -> None:
        self._jobs = jobs
        self._heads = heads
        self._line = line
        self._worth = worth
        self._has_left = False

    def __iter__(self) -> Iterator[Job]:
        begun: list[tuple[Rank, JobId, Iterator[Entry]]] = []
        for rank, first, key in self._heads:
            while begun and begun[0][:2] < (rank, first):
                yield from self._next(begun)
            if self._worth is not None and key not in self._worth:
                continue
            self._has_left = False
            yield self._jobs[first]
            if not self._has_left:
                line = islice(self._line(key), 1, None)
                following = next(line, None)
                if following is not None:
                    heappush(begun, (*following, line))
        while begun:
            yield from self._next(begun)

    def _next(self, begun: list[tuple[Rank, JobId, Iterator[Entry]]]) -> Iterator[Job]:
        """The first of the jobs that follow another of their class."""
        _, job, line = begun[0]
        self._has_left = False
        yield self._jobs[job]
        following = None if self._has_left else next(line, None)
        if following is None:
            heappop(begun)
        else:
            heapreplace(begun, (*following, line))

    def skip_class(self) -> None:
        self._has_left = True

    def took(self, _job: Job, _spec: JobSpec) -> None:
        """Nothing to do."""


FEW: Final = 8  # where fewer than one in so many classes is worth looking at, their lines are asked for one by one


Walks = Callable[[Callable[[], Classes]], QueueIterator]  # makes walks over classes worth looking at


def by_heads(draft: Draft, pool: str, index: ByLength, rank: RankOf) -> Walks:
    """Makes walks by rank, for orders in which the rank of a waiting job stays as it is.

    With 1,000 families an end under `colane` takes 0.9 ms by this in place of 3.7 (`benchmarks/decide.py`, as source).
    """
    view = draft.view
    few = ranked(draft, sorted_lines(draft, index, rank))

    def walk(worth: Callable[[], Classes]) -> QueueIterator:
        classes, everything = worth(), view.queue(pool).classes
        if len(classes) * FEW < len(everything):
            return few(lambda: classes)
        heads = index.heads(view, pool, rank)

        def line(key: ClassKey) -> Iterator[Entry]:
            return index.entries(view, key, everything[key], rank)

        return ByHeads(view.jobs, heads, line, None if classes is everything else classes)

    return walk
