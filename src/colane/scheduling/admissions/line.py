"""Who may pass the head of the line: none of those behind it, or those found among so many looked at."""

from __future__ import annotations

from dataclasses import dataclass

from colane.model.job import Job
from colane.scheduling.engine.contracts import Desk, Verdict
from colane.scheduling.engine.refusals import behind
from colane.scheduling.engine.usual import UsualRule


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """The first job that finds nothing holds up all behind it.

    Attributes:
        strict: Whether it does at all.
    """

    strict: bool = True

    def bind(self, desk: Desk) -> HeadOfLineRule | None:
        """See `Admission`."""
        if not self.strict:
            return None
        desk.skips_hopeless = False
        return HeadOfLineRule(desk)


class HeadOfLineRule(UsualRule):
    """See `HeadOfLine`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def refused(self, job: Job, _verdict: Verdict) -> Verdict:
        """See `Rule`."""
        draft, desk = self._desk.draft, self._desk
        until_s = desk.watch_overdue()
        is_known = desk.queue.is_arrival and all(finder.only_free for finder in desk.finders)
        if is_known and not draft.held and draft.now_s < until_s:
            draft.block(job, desk.least(job), until_s)
        draft.wait_rest(desk.pool, behind(job.id))
        return Verdict.STOP


@dataclass(frozen=True, slots=True)
class DepthMax:
    """Looking for jobs that may pass ends when so many were looked at one by one.

    Attributes:
        depth_max: So many.
    """

    depth_max: int = 1000

    def bind(self, desk: Desk) -> DepthRule:
        """See `Admission`."""
        return DepthRule(desk, self.depth_max)


class DepthRule(UsualRule):
    """See `DepthMax`."""

    def __init__(self, desk: Desk, depth_max: int) -> None:
        self._desk = desk
        self._depth_max = self._left = depth_max

    def walks(self) -> None:
        """See `Rule`: another walk looks as far as a plan made anew would."""
        self._left = self._depth_max

    def refused(self, _job: Job, verdict: Verdict) -> Verdict:
        """See `Rule`."""
        if verdict is Verdict.NEXT_JOB:
            self._left -= 1
        if self._left > 0:
            return verdict
        self._desk.watch_overdue()
        return Verdict.STOP
