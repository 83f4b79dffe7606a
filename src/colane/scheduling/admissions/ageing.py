"""Ageing: who has waited too long goes first, and room is kept for him, so that every wait is bounded.

Overdue jobs are served before the order begins, the oldest first, whatever their priority. The first that finds nothing
has GPUs kept for it on the node that comes nearest to having room: those that are free, and of the others as many as it
lacks are not joined any more. So as long as jobs end, it starts. For one without GPUs, cores and host memory are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge

from colane.core.cluster.queue import Line
from colane.model.job import Job, JobId
from colane.scheduling.admissions.keeping import keep_host, keep_room
from colane.scheduling.engine.contracts import Desk
from colane.scheduling.engine.usual import UsualRule

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Ageing:
    """See the module.

    Attributes:
        max_wait_s: A job that has waited longer is overdue; None never.
    """

    max_wait_s: float | None = HOUR_S

    def bind(self, desk: Desk) -> AgeingRule | None:
        """See `Admission`."""
        if self.max_wait_s is None:
            return None
        desk.max_wait_s = self.max_wait_s
        return AgeingRule(desk) if _may_be_overdue(desk) else None


class AgeingRule(UsualRule):
    """See `Ageing`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def urgent(self) -> Iterator[Job]:
        """Overdue jobs, the oldest first, until one finds nothing: room is kept for that one."""
        draft, cpu_only = self._desk.draft, self._overdue_cpu_only()
        for job in self._overdue():
            if not draft.is_undecided(job.id):
                continue
            if cpu_only is not None and cpu_only.id < job.id:
                keep_host(draft, cpu_only)
                cpu_only = None
            yield job
            if draft.is_undecided(job.id) and job.id not in draft.waits:
                kept = keep_room(draft, job, self._desk.least(job))
                if kept is not None:
                    self._desk.changed(kept)
                    return
        if cpu_only is not None:
            keep_host(draft, cpu_only)

    def _overdue_cpu_only(self) -> Job | None:
        """The oldest overdue job without GPUs: it is placed after all that have some, but what it books is kept."""
        view, desk = self._desk.draft.view, self._desk
        firsts = [line.first for line in view.queue(desk.pool).cpu_only.values()]
        waiting = [view.job(first) for first in firsts if first is not None]
        return min([job for job in waiting if desk.is_overdue(job)], key=_id, default=None)

    def _overdue(self) -> Iterator[Job]:
        desk = self._desk
        lines = desk.draft.view.queue(desk.pool).lines
        if len(lines) == 1:
            return self._overdue_of(*lines.values())
        return merge(*[self._overdue_of(line) for line in lines.values()], key=_id)

    def _overdue_of(self, line: Line) -> Iterator[Job]:
        """Those of one priority; who came later than the bound ago has not waited longer than that."""
        desk, jobs = self._desk, self._desk.draft.view.jobs
        for job_id in line:
            job = jobs[job_id]
            if job.submit_s + desk.max_wait_s > desk.draft.now_s:
                return
            if desk.is_overdue(job):
                yield job
            else:  # it waits anew, and will go before those behind it in line
                desk.draft.ask_again(desk.pool, desk.overdue_s(job))


def _may_be_overdue(desk: Desk) -> bool:
    """Whether anybody came longer ago than the bound: the first of his line has then, too."""
    view, now_s = desk.draft.view, desk.draft.now_s
    queue = view.queue(desk.pool)
    for line in (*queue.lines.values(), *queue.cpu_only.values()) if queue.cpu_only else queue.lines.values():
        first = line.first
        if first is not None and view.jobs[first].submit_s + desk.max_wait_s <= now_s:
            return True
    return False


def _id(job: Job) -> JobId:
    return job.id
