"""Waiting jobs of a pool, one after another, in an order given by class."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from colane.model.job import Job, JobId, NeedClass

if TYPE_CHECKING:
    from colane.core.draft import Draft


class ClassWalk:
    """Waiting jobs of a pool in an order given by class; a class that found no place is left as a whole.

    Args:
        draft: Where decisions are made.
        pool: Whose queue.
        key: Sort key of a class, smallest first; jobs of equal keys go by priority, then by arrival.
    """

    def __init__(self, draft: Draft, pool: str, key: dict[NeedClass, tuple[float, ...]]) -> None:
        self._draft = draft
        self._lines: list[tuple[NeedClass, Iterator[JobId]]] = []
        self._heap: list[tuple[int, tuple[float, ...], JobId, int]] = []
        self._current: tuple[int, tuple[float, ...], int] | None = None
        for (priority, need), line in draft.view.queue(pool).classes.items():
            self._lines.append((need, iter(line)))
            self._push(-priority, key.get(need, ()), len(self._lines) - 1)
        heapify(self._heap)

    def __iter__(self) -> Iterator[Job]:
        while True:
            if self._current is not None:
                self._push(*self._current)
                self._current = None
            if not self._heap:
                return
            priority, key, job, line = heappop(self._heap)
            self._current = (priority, key, line)
            yield self._draft.view.job(job)

    def leave_class(self) -> None:
        """Nobody else with the needs of the job last seen can be placed."""
        self._current = None

    def _push(self, priority: int, key: tuple[float, ...], line: int) -> None:
        job = next(self._lines[line][1], None)
        if job is not None:
            heappush(self._heap, (priority, key, job, line))
