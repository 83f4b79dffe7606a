"""Moving jobs that run to where their round wants them: they are stopped, and start there as those that wait do."""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.cluster.draft import Draft
from colane.model.job import Job
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.times import gpu_type_of
from colane.scheduling.mechanisms.fairness.aim import Aim


@dataclass(frozen=True, slots=True)
class ToAim:
    """Stops jobs that are to go on on a faster type, or must leave for others; does nothing without rounds."""

    # a job is moved to a type on which it is faster by this factor at least; else it stays while no other job needs its
    # GPUs
    speed_gain_min: float = 1.05

    @property
    def goes_first(self) -> bool:
        """Those that wait start where others leave."""
        return True

    def plan(self, context: SchedulingContext) -> None:
        aim = context.queue.aim
        if not isinstance(aim, Aim):
            return
        context.draft.plan_while_idle(context.pool)
        if context.draft.view.holders(context.pool) or aim.members.waiting:
            context.draft.plan_again(context.pool, aim.until_s)
        change = _Change(context, aim)
        change.raise_all(self.speed_gain_min)
        for kind in context.draft.view.gpu_types(context.pool):
            change.preempt(kind)


class _Change:
    def __init__(self, context: SchedulingContext, aim: Aim) -> None:
        self._draft: Draft = context.draft
        self._pool = context.pool
        self._aim = aim
        self._rising: list[Job] = []

    def raise_all(self, gain_min: float) -> None:
        """Stop jobs that are to run on a type on which they are faster."""
        speeds = {(request.job, request.gpu_type): request.speed for request in self._aim.requests}
        for job in self._aim.members.movable:
            here, there = gpu_type_of(self._draft.view, job) or "", self._aim.types.get(job.id, "")
            if there not in ("", here) and speeds[job.id, there] >= gain_min * speeds.get((job.id, here), 0.0):
                self._rising.append(job)
                self._draft.stop(job, Reason(Why.MOVES_TYPE, {"gpu_type": there}))

    def preempt(self, kind: str) -> None:
        """Of the jobs that are not to run on a type stop as many as those that are to come need, the last first.

        For gangs all of them, as it matters on which node.
        """
        coming = self._coming(kind)
        short = sum([job.gpu_count for job in coming]) - self._coming_free(kind) if coming else 0
        most_free = self._draft.free((self._pool, kind)).most_free
        has_gangs = max([job.gpu_count for job in coming], default=0) > max(1, most_free)
        for job in self._others(kind) if short > 0 or has_gangs else ():
            because = "others have had less of what they are to have"
            self._draft.stop(job, Reason(Why.PREEMPTED, {"because": because}, (coming[0].id,)))
            short -= len(job.gpus_held)
            if short <= 0 and not has_gangs:
                break

    def _coming(self, kind: str) -> list[Job]:
        """Jobs that are to run on a type and do not yet."""
        members = self._aim.members
        return [job for job in (*members.waiting, *members.going, *self._rising) if self._aim.types.get(job.id) == kind]

    def _coming_free(self, kind: str) -> int:
        """GPUs of a type that are free, or will be by what has been decided."""
        view = self._draft.view
        free = sum([self._draft.free_count(node, kind) for node in view.nodes.values() if node.node.pool == self._pool])
        leaving = [job for job in (*self._aim.members.going, *self._rising) if gpu_type_of(view, job) == kind]
        return free + sum([len(job.gpus_held) for job in leaving])

    def _others(self, kind: str) -> list[Job]:
        """Jobs that run on a type and are not to, the last in order first."""
        here = [job for job in self._aim.members.movable if gpu_type_of(self._draft.view, job) == kind]
        going = {job.id for job in self._rising}
        place = {request.job: number for number, request in enumerate(reversed(self._aim.requests))}
        others = [job for job in here if job.id not in going and self._aim.types.get(job.id) != kind]
        return sorted(others, key=lambda job: (place.get(job.id, -1), job.id))
