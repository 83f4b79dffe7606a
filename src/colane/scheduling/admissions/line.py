"""Which jobs may pass the head of the line: none of those behind it, or those found among so many looked at."""

from __future__ import annotations

from dataclasses import dataclass

from colane.model.job import Job
from colane.scheduling.engine.contracts import SchedulingContext, Verdict
from colane.scheduling.engine.refusals import behind, waits_for_reserved
from colane.scheduling.engine.usual import UsualRule


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """The first job that finds nothing holds up all behind it, unless it waits for reserved nodes alone."""

    strict: bool = True  # whether it does at all

    def bind(self, context: SchedulingContext) -> HeadOfLineRule | None:
        if not self.strict:
            return None
        context.skips_hopeless = False
        return HeadOfLineRule(context)


class HeadOfLineRule(UsualRule):
    """`HeadOfLine` for one plan."""

    def __init__(self, context: SchedulingContext) -> None:
        self._context = context

    def refused(self, job: Job, verdict: Verdict) -> Verdict:
        if waits_for_reserved(self._context.draft, job):
            return verdict
        self._context.watch_overdue()
        self._context.draft.wait_rest(self._context.pool, behind(job.id))
        return Verdict.STOP


@dataclass(frozen=True, slots=True)
class DepthMax:
    """Looking for jobs that may pass ends when so many were looked at one by one."""

    depth_max: int = 1000  # so many

    def bind(self, context: SchedulingContext) -> DepthRule:
        return DepthRule(context, self.depth_max)


class DepthRule(UsualRule):
    """`DepthMax` for one plan."""

    def __init__(self, context: SchedulingContext, depth_max: int) -> None:
        self._context = context
        self._depth_max = self._left = depth_max

    def walks(self) -> None:
        """Another walk looks as far as a plan made anew would."""
        self._left = self._depth_max

    def refused(self, _job: Job, verdict: Verdict) -> Verdict:
        if verdict is Verdict.NEXT_JOB:
            self._left -= 1
        if self._left > 0:
            return verdict
        self._context.watch_overdue()
        return Verdict.STOP
