"""Serving the waiting jobs of a pool in an order given for each job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from colane.core.draft import Draft
from colane.model.job import Job, JobId, JobSpec
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_fit

Rank = tuple[float, ...]
"""Smaller goes first; the first number is the priority with its sign turned, so that higher priorities go first."""


class Ranked:
    """Waiting jobs of a pool by rank, equal ranks by arrival; a class that found no place is left as a whole."""

    def __init__(self, draft: Draft, pool: str, rank: Callable[[Job], Rank]) -> None:
        self._jobs = draft.view.jobs
        self._lines: list[list[tuple[Rank, JobId]]] = []
        for line in draft.view.queue(pool).classes.values():
            self._lines.append([(rank(self._jobs[job]), job) for job in line])
        for ranked in self._lines:
            heapify(ranked)
        self._heads = [(*heappop(ranked), index) for index, ranked in enumerate(self._lines)]
        heapify(self._heads)
        self._current: int | None = None

    def __iter__(self) -> Iterator[Job]:
        while self._heads:
            _, job, self._current = heappop(self._heads)
            yield self._jobs[job]
            if self._current is not None and self._lines[self._current]:
                heappush(self._heads, (*heappop(self._lines[self._current]), self._current))

    def leave_class(self) -> None:
        """Nobody else with the needs of the job last seen can be placed."""
        self._current = None


def may_start(draft: Draft, pool: str) -> bool:
    """Whether there is a free GPU in a pool; without one, looking at its jobs is only worth it to explain."""
    types = draft.view.gpu_types(pool)
    return draft.view.explain is not None or any(draft.free((pool, kind)).most_free for kind in types)


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
