"""Waiting jobs of a class by how long they are believed to run; kept sorted from one plan to the next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from colane.core.draft import Draft
from colane.core.queue import Line
from colane.core.view import ClusterView
from colane.model.job import Job, JobId
from colane.policies.blocks.serving import ClassKey, Entry, Lines, Rank

RankOf = Callable[[Job], Rank]


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


class ByLength:
    """Classes that were asked for. The rank of a waiting job must only depend on what it is and what is believed."""

    def __init__(self) -> None:
        self._classes: dict[ClassKey, _Sorted] = {}

    def touched(self, node: int) -> None:
        """See `Derived`."""

    def removed(self, node: int) -> None:
        """See `Derived`."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        """See `DerivedOfJobs`."""
        if old is not None and old.is_waiting and (line := self._line(old)) is not None:
            line.drop(old.id)
            if not line.ranks and not line.new:
                del self._classes[old.spec.priority, old.spec.need]
        if new is not None and new.is_waiting and (line := self._line(new)) is not None:
            line.new[new.id] = None

    def _line(self, job: Job) -> _Sorted | None:
        return self._classes.get((job.spec.priority, job.spec.need)) if job.spec.company is None else None

    def entries(self, view: ClusterView, key: ClassKey, line: Line, rank: RankOf) -> Iterator[Entry]:
        """The jobs of a class by rank."""
        known, gpu_types = self._classes.get(key), len(view.gpu_types(key[1].pool))
        if known is None or (known.beliefs, known.gpu_types) != (view.beliefs.version, gpu_types):
            ranks = {job: rank(view.job(job)) for job in line}
            entries = sorted([(rank, job) for job, rank in ranks.items()])
            known = self._classes[key] = _Sorted(view.beliefs.version, gpu_types, entries, ranks)
        known.take_in(view, rank)
        return iter(known.entries)


class ByRemaining(ByLength):
    """The same by what is left of it."""


def by_length(draft: Draft, rank: RankOf) -> Lines:
    """Lines by run time."""
    return _lines(draft, draft.view.derived(ByLength), rank)


def by_remaining(draft: Draft, rank: RankOf) -> Lines:
    """Lines by remaining time."""
    return _lines(draft, draft.view.derived(ByRemaining), rank)


def _lines(draft: Draft, index: ByLength, rank: RankOf) -> Lines:
    def by_rank(key: ClassKey, line: Line) -> Iterator[Entry]:
        return index.entries(draft.view, key, line, rank)

    return by_rank
