"""Serving the waiting jobs of a pool in an order given for each job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge

from colane.core.draft import Draft
from colane.core.queue import Line
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.standing import Standing

Rank = tuple[float, ...]
"""Smaller goes first; the first number is the priority with its sign turned, so that higher priorities go first."""


Entry = tuple[Rank, JobId]

ClassKey = tuple[int, NeedClass]
"""A priority and a class of need."""

Lines = Callable[[ClassKey, Line], Iterator[Entry]]
"""Gives the waiting jobs of a class by rank, equal ranks by arrival."""


class Ranked:
    """Waiting jobs of several classes by rank, equal ranks by arrival; one that found no place is left as a whole.

    Args:
        jobs: Live jobs.
        lines: Of each class its jobs in this order.

    Attributes:
        rank: Of the job last seen.
    """

    def __init__(self, jobs: Mapping[JobId, Job], lines: Iterable[Iterator[Entry]]) -> None:
        self._jobs = jobs
        heads = ((next(line, None), index, line) for index, line in enumerate(lines))
        self._heads = [(*head, index, line) for head, index, line in heads if head is not None]
        heapify(self._heads)
        self._has_left = False
        self.rank: Rank = ()

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            self.rank, job, index, line = self._heads[0]
            self._has_left = False
            yield self._jobs[job]
            following = None if self._has_left else next(line, None)
            if following is None:
                heappop(self._heads)
            else:
                heapreplace(self._heads, (*following, index, line))

    def leave_class(self) -> None:
        """Nobody else with the needs of the job last seen can be placed."""
        self._has_left = True


def each_ranked(draft: Draft, rank: Callable[[Job], Rank]) -> Lines:
    """Lines for orders in which every job's rank has to be worked out."""
    jobs = draft.view.jobs

    def by_rank(_key: ClassKey, line: Line) -> Iterator[Entry]:
        return iter(sorted([(rank(jobs[job]), job) for job in line]))

    return by_rank


def newcomers_by_arrival(draft: Draft, pool: str, rank: Callable[[Job], Rank]) -> Lines:
    """Lines for orders in which jobs of a class that have never run rank by arrival: others are ranked one by one."""
    jobs, returned = draft.view.jobs, draft.view.derived(Standing).pool(pool).returned
    by_class: dict[ClassKey, list[Job]] = {}
    for job in returned.values():
        by_class.setdefault((job.spec.priority, job.spec.need), []).append(job)

    def newcomers(line: Line) -> Iterator[Entry]:
        for job in line:
            if job not in returned:
                yield rank(jobs[job]), job

    def by_rank(key: ClassKey, line: Line) -> Iterator[Entry]:
        old, new = by_class.get(key), newcomers(line)
        return merge(new, sorted([(rank(job), job.id) for job in old])) if old else new

    return by_rank


def may_start(draft: Draft, pool: str) -> bool:
    """Whether there is a free GPU in a pool; without one, looking at its jobs is only worth it to explain."""
    return draft.view.explain is not None or has_free(draft, pool)


def has_free(draft: Draft, pool: str) -> bool:
    """Whether there is a free GPU in a pool."""
    return any(draft.free((pool, kind)).most_free for kind in draft.view.gpu_types(pool))


def with_enough_free(draft: Draft, pool: str) -> Mapping[ClassKey, Line]:
    """Waiting jobs of the classes for which there are enough free GPUs, on one node where they need that."""
    most = {kind: draft.free((pool, kind)).most_free for kind in draft.view.gpu_types(pool)}
    anywhere = max(most.values(), default=0)
    classes = draft.view.queue(pool).classes
    if not anywhere:
        return {}
    return {
        (priority, need): line
        for (priority, need), line in classes.items()
        if need.multi_node or need.gpus <= (anywhere if need.gpu_type is None else most.get(need.gpu_type, 0))
    }


def start_on_free(draft: Draft, job: Job, types: Iterable[str] | None = None) -> bool:
    """Start a job on free GPUs of the first node that has room, of the first of the GPU types that has such a node."""
    gpus = first_fit(draft, job.spec, types)
    if gpus is None:
        return False
    draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
    return True


def priority_of(spec: JobSpec) -> float:
    """First number of a rank."""
    return float(-spec.priority)
