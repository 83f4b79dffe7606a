"""Walks over waiting jobs; a class that found no place is left as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from colane.core.cluster.draft import Draft
from colane.core.cluster.queue import Line
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.scheduling.engine.contracts import BoundOrder, Classes, ClassKey, Rank

Entry = tuple[Rank, JobId]

Lines = Callable[[ClassKey, Line], Iterator[Entry]]  # gives the waiting jobs of a class by rank, equal ranks by arrival

Keys = Callable[[NeedClass], tuple[float, ...]]  # gives the sort key of a class, smallest first


def priority_of(spec: JobSpec) -> float:
    """First number of a rank."""
    return float(-spec.priority)


def rank_by_priority(job: Job) -> Rank:
    """Where nothing but priority counts."""
    return (priority_of(job.spec),)


def by_gain(displaces_min: float, waiting: Rank, running: Rank) -> bool:
    """A job takes the place of one of lower priority, or of its own and a second number more than so many times its."""
    if waiting[0] != running[0]:
        return waiting[0] < running[0]
    return waiting[1] * displaces_min < running[1]


def by_priority(waiting: Rank, running: Rank) -> bool:
    """A job takes the place of one of lower priority only."""
    return waiting[0] < running[0]


class ByClass:
    """Jobs of higher priority first, among them by the key of their class, then by arrival.

    Parked jobs go first of their priority: none of those behind them could have taken their place.

    Without keys the line is followed as it is, and classes are looked at only once one has been left.

    Args:
        draft: Where decisions are made.
        pool: The pool.
        worth: Classes worth looking at.
        keys: Of classes; None orders by arrival alone.
    """

    def __init__(self, draft: Draft, pool: str, worth: Callable[[], Classes], keys: Keys | None = None) -> None:
        self._draft = draft
        self._pool = pool
        self._worth = worth
        self._keys = keys
        self._has_left = False
        self._left: ClassKey | None = None

    def __iter__(self) -> Iterator[Job]:
        seen: set[JobId] = set()
        if self._keys is None:
            jobs = self._draft.view.jobs
            for job_id in self._draft.view.queue(self._pool):
                job = jobs[job_id]
                seen.add(job_id)
                yield job
                if self._has_left:
                    self._left = (job.spec.priority, job.need)
                    break
            else:
                return
        yield from self._by_class(seen)

    def skip_class(self) -> None:
        self._has_left = True

    def took(self, _job: Job, _spec: JobSpec) -> None:
        """Nothing to do."""

    def _by_class(self, seen: set[JobId]) -> Iterator[Job]:
        jobs, keys = self._draft.view.jobs, self._keys
        heads: list[tuple[int, tuple[float, ...], JobId, int, Iterator[JobId]]] = []
        for number, ((priority, need), line) in enumerate(self._worth().items()):
            rest = _unseen(line, seen) if seen else iter(line)
            first = None if (priority, need) == self._left else next(rest, None)
            if first is not None:
                key = () if keys is None or need.home else keys(need)
                heads.append((-priority, key, first, number, rest))
        heapify(heads)
        while heads:
            minus_priority, key, job, number, rest = heads[0]
            self._has_left = False
            yield jobs[job]
            following = None if self._has_left else next(rest, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (minus_priority, key, following, number, rest))


def _unseen(line: Line, seen: set[JobId]) -> Iterator[JobId]:
    for job in line:
        if job not in seen:
            yield job


class ByRank:
    """Jobs of several lines by rank, equal ranks by arrival; a class that found no place is left in all its lines.

    Args:
        jobs: Live jobs.
        lines: Jobs of one class in this order each, and which class that is.
    """

    def __init__(self, jobs: Mapping[JobId, Job], lines: Iterable[tuple[ClassKey, Iterator[Entry]]]) -> None:
        self._jobs = jobs
        heads = ((next(line, None), number, key, line) for number, (key, line) in enumerate(lines))
        self._heads = [(*head, number, key, line) for head, number, key, line in heads if head is not None]
        heapify(self._heads)
        self._left: set[ClassKey] = set()
        self._key: ClassKey | None = None

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            _, job, number, key, line = self._heads[0]
            if not self._is_left(key):
                self._key = key
                yield self._jobs[job]
            following = None if self._is_left(key) else next(line, None)
            if following is None:
                heappop(self._heads)
            else:
                heapreplace(self._heads, (*following, number, key, line))

    def _is_left(self, key: ClassKey) -> bool:
        return bool(self._left) and key in self._left

    def skip_class(self) -> None:
        if self._key is not None:
            self._left.add(self._key)

    def took(self, _job: Job, _spec: JobSpec) -> None:
        """Nothing to do."""


def ranked(draft: Draft, lines: Lines) -> Callable[[Callable[[], Classes]], ByRank]:
    """Makes walks by rank."""

    def walk(worth: Callable[[], Classes]) -> ByRank:
        return ByRank(draft.view.jobs, [(key, lines(key, line)) for key, line in worth().items()])

    return walk


def each_ranked(draft: Draft, rank: Callable[[Job], Rank]) -> Lines:
    """Lines for orders in which every job's rank has to be worked out."""
    jobs = draft.view.jobs

    def by_rank(_key: ClassKey, line: Line) -> Iterator[Entry]:
        return iter(sorted([(rank(jobs[job]), job) for job in line]))

    return by_rank


class Starts:
    """What a plan has started so far: walks that are told of it each time anew take n^2 steps for n starts.

    Attributes:
        held: GPUs given by it, by user.
    """

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self._jobs: set[JobId] = set()
        self._passed: dict[tuple[str, ClassKey], int] = {}

    def took(self, job: Job, spec: JobSpec) -> None:
        """A job starts at this size."""
        self.held[job.spec.user] += spec.gpus
        self._jobs.add(job.id)

    def left(self, user: str, key: ClassKey, line: Iterator[Entry]) -> Iterator[Entry]:
        """A user's line from the first job on that was not started."""
        passed = self._passed.get((user, key), 0)
        rest = islice(line, passed, None)
        for entry in rest:
            if entry[1] not in self._jobs:
                self._passed[user, key] = passed
                return chain((entry,), rest)
            passed += 1
        self._passed[user, key] = passed
        return iter(())


class WalksByRank:
    """Makes walks by rank that go past what a plan has started, where every job's rank has to be worked out.

    Args:
        draft: Where decisions are made.
        rank: Of a waiting job; it stays while a plan is made.
    """

    def __init__(self, draft: Draft, rank: Callable[[Job], Rank]) -> None:
        self._jobs = draft.view.jobs
        self._ranked = each_ranked(draft, rank)
        self._lines: dict[ClassKey, list[Entry]] = {}
        self._starts = Starts()

    def walk(self, worth: Callable[[], Classes]) -> ByRank:
        found = list[tuple[ClassKey, Iterator[Entry]]]()
        for key, line in worth().items():
            if key not in self._lines:
                self._lines[key] = list(self._ranked(key, line))
            found.append((key, self._starts.left("", key, iter(self._lines[key]))))
        return ByRank(self._jobs, found)

    def took(self, job: Job, spec: JobSpec) -> None:
        self._starts.took(job, spec)


def in_line(draft: Draft, pool: str, keys: Keys | None = None) -> BoundOrder:
    """Jobs of higher priority first, among them by the key of their class, then by arrival."""

    def walk(worth: Callable[[], Classes]) -> ByClass:
        return ByClass(draft, pool, worth, keys)

    return BoundOrder(walk=walk, rank=rank_by_priority, displaces=by_priority, class_key=keys)
