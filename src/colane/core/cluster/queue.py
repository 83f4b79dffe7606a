"""Waiting jobs, indexed so that an event costs what it changes: by pool, by priority and arrival, by class of need."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from colane.model.job import Job, JobId, NeedClass

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
        """Whether it is empty; both ends are kept clean of jobs that have left."""
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
            insort(ids, job)

    def remove(self, job: JobId) -> bool:
        """Take out a job that is in it; whether none is left."""
        ids, gone = self._ids, self._gone
        if ids[0] == job and not gone:
            ids.popleft()
            return not ids
        gone.add(job)
        while ids and ids[0] in gone:
            gone.discard(ids.popleft())
        while ids and ids[-1] in gone:
            gone.discard(ids.pop())
        return not ids


class PoolQueue:
    """Waiting jobs of one pool.

    Attributes:
        lines: Jobs by priority.
        classes: Jobs by priority and class of need.
        measurement_groups: Members of sets under measurement; they are in no class and in no line.
        cpu_only: Jobs without GPUs by priority and class of need; they are in no other class and in no line.
        count: All of them.
        parked: Those in lines that are parked, and wait to come back.
    """

    __slots__ = ("classes", "count", "cpu_only", "lines", "measurement_groups", "parked")

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}
        self.classes: dict[tuple[int, NeedClass], Line] = {}
        self.measurement_groups = Line()
        self.cpu_only: dict[tuple[int, NeedClass], Line] = {}
        self.count = 0
        self.parked = 0

    def __iter__(self) -> Iterator[JobId]:
        """All that policies order: highest priority first, then by arrival."""
        for priority in sorted(self.lines, reverse=True):
            yield from self.lines[priority]

    @property
    def first(self) -> JobId | None:
        """Head of the line."""
        return self.lines[max(self.lines)].first if self.lines else None

    def add(self, job: Job) -> None:
        """Put a job in its place."""
        self.count += 1
        if job.spec.measurement_group is not None:
            self.measurement_groups.add(job.id)
            return
        if not job.spec.gpus:
            _enter(self.cpu_only, (job.spec.priority, job.need), job.id)
            return
        self.parked += job.parking is not None and job.parking.home != ""
        _enter(self.lines, job.spec.priority, job.id)
        _enter(self.classes, (job.spec.priority, job.need), job.id)

    def remove(self, job: Job) -> None:
        """Take a job out, as it was put in."""
        self.count -= 1
        if job.spec.measurement_group is not None:
            self.measurement_groups.remove(job.id)
            return
        if not job.spec.gpus:
            _drop(self.cpu_only, (job.spec.priority, job.need), job.id)
            return
        self.parked -= job.parking is not None and job.parking.home != ""
        _drop(self.lines, job.spec.priority, job.id)
        _drop(self.classes, (job.spec.priority, job.need), job.id)


def _enter(lines: dict[K, Line], key: K, job: JobId) -> None:
    if key not in lines:
        lines[key] = Line()
    lines[key].add(job)


def _drop(lines: dict[K, Line], key: K, job: JobId) -> None:
    if lines[key].remove(job):
        del lines[key]
