"""Waiting jobs, indexed so that an event costs what it changes: by pool, by priority and arrival, by class of need."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from colane.model.job import JobId, JobSpec, NeedClass

K = TypeVar("K")


class Line:
    """Job ids in order of arrival; removal in the middle is lazy, so both ends and the middle cost O(1)."""

    __slots__ = ("_gone", "_ids")

    def __init__(self) -> None:
        self._ids: deque[JobId] = deque()
        self._gone: set[JobId] = set()

    def __len__(self) -> int:
        return len(self._ids) - len(self._gone)

    def __iter__(self) -> Iterator[JobId]:
        return self._left() if self._gone else iter(self._ids)

    def _left(self) -> Iterator[JobId]:
        for job in self._ids:
            if job not in self._gone:
                yield job

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it; both ends are kept clean of those that have left."""
        return not self._ids

    @property
    def first(self) -> JobId | None:
        """The oldest."""
        return self._ids[0] if self._ids else None

    def add(self, job: JobId) -> None:
        """Insert by id; a job that comes back finds its old place."""
        ids = self._ids
        if job in self._gone:
            self._gone.discard(job)
        elif not ids or job > ids[-1]:
            ids.append(job)
        elif job < ids[0]:
            ids.appendleft(job)
        else:
            self._ids = deque(sorted((*ids, job)))

    def remove(self, job: JobId) -> None:
        """Take out a job that is in it."""
        ids, gone = self._ids, self._gone
        if ids[0] == job and not gone:
            ids.popleft()
            return
        gone.add(job)
        while ids and ids[0] in gone:
            gone.discard(ids.popleft())
        while ids and ids[-1] in gone:
            gone.discard(ids.pop())


class PoolQueue:
    """Waiting jobs of one pool.

    Attributes:
        classes: Jobs by priority and class of need.
        companies: Members of sets under measurement; they are in no class and in no line.
        count: All of them.
    """

    __slots__ = ("_lines", "classes", "companies", "count")

    def __init__(self) -> None:
        self._lines: dict[int, Line] = {}
        self.classes: dict[tuple[int, NeedClass], Line] = {}
        self.companies = Line()
        self.count = 0

    def __iter__(self) -> Iterator[JobId]:
        """All that policies order: highest priority first, then by arrival."""
        for priority in sorted(self._lines, reverse=True):
            yield from self._lines[priority]

    @property
    def first(self) -> JobId | None:
        """Head of the line."""
        return self._lines[max(self._lines)].first if self._lines else None

    def add(self, job: JobId, spec: JobSpec) -> None:
        """Put a job in its place."""
        self.count += 1
        if spec.company is not None:
            self.companies.add(job)
            return
        _enter(self._lines, spec.priority, job)
        _enter(self.classes, (spec.priority, spec.need), job)

    def remove(self, job: JobId, spec: JobSpec) -> None:
        """Take a job out."""
        self.count -= 1
        if spec.company is not None:
            self.companies.remove(job)
            return
        _drop(self._lines, spec.priority, job)
        _drop(self.classes, (spec.priority, spec.need), job)


def _enter(lines: dict[K, Line], key: K, job: JobId) -> None:
    line = lines.get(key)
    if line is None:
        line = lines[key] = Line()
    line.add(job)


def _drop(lines: dict[K, Line], key: K, job: JobId) -> None:
    line = lines[key]
    line.remove(job)
    if line.is_empty:
        del lines[key]
