"""Jobs without GPUs by user: the cores that theirs hold, and which wait; kept from one plan to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.queue import Line
from colane.model.job import Job, JobId, NeedClass

ClassLines = dict[tuple[int, NeedClass], Line]  # waiting jobs by priority and class of need


class CpuLines(NodesMatterNot):
    """An index of jobs without GPUs by user."""

    def __init__(self) -> None:
        self._cores: Counter[tuple[str, str]] = Counter()
        self._lines: dict[str, dict[str, ClassLines]] = {}
        self._returned: dict[str, Line] = {}

    def lines(self, pool: str) -> dict[str, ClassLines]:
        """Waiting jobs of each user that has some."""
        return self._lines.get(pool, {})

    def cores(self, pool: str, user: str) -> int:
        """Cores that a user's jobs without GPUs hold of a pool."""
        return self._cores[pool, user]

    def returned(self, pool: str) -> Iterator[JobId]:
        """Waiting jobs that have run before: those aborted for others."""
        line = self._returned.get(pool)
        return iter(()) if line is None else iter(line)

    def cpu_only_moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and new is not None and old.effective is new.effective and _place(old) == _place(new):
            return
        if old is not None:
            self._leave(old)
        if new is not None:
            self._enter(new)

    def _enter(self, job: Job) -> None:
        spec = job.effective
        if job.placement is not None:
            self._cores[spec.pool, spec.user] += spec.cores
        elif job.is_waiting:
            lines = self._lines.setdefault(spec.pool, {}).setdefault(spec.user, {})
            lines.setdefault((spec.priority, job.need), Line()).add(job.id)
            if job.attempt:
                self._returned.setdefault(spec.pool, Line()).add(job.id)

    def _leave(self, job: Job) -> None:
        spec = job.effective
        if job.placement is not None:
            self._cores[spec.pool, spec.user] -= spec.cores
        elif job.is_waiting:
            self._leave_line(job)
            if job.attempt:
                self._returned[spec.pool].remove(job.id)

    def _leave_line(self, job: Job) -> None:
        users = self._lines[job.spec.pool]
        lines = users[job.spec.user]
        line = lines[job.spec.priority, job.need]
        line.remove(job.id)
        if line.is_empty:
            del lines[job.spec.priority, job.need]
        if not lines:
            del users[job.spec.user]


def _place(job: Job) -> tuple[bool, bool, int]:
    """What of it counts here."""
    return job.placement is not None, job.is_waiting, job.attempt
