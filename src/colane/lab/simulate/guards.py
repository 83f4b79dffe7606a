"""Counts how often guards of a policy decided: ageing, hysteresis, sparing jobs that have hardly begun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from colane.model.job import Job, JobId
from colane.model.phases import MOVABLE
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import ran_since_s
from colane.scheduling.engine.walks import by_gain


class GuardCounts(NamedTuple):
    """How often guards decided.

    Attributes:
        ageing: Jobs served as they had waited too long, out of turn or on GPUs kept for them, each time one was.
        hysteresis: Waiting jobs that would have taken a running one's place if no gain over it were asked for.
        protection: Waiting jobs that would have taken the place of a running one that was spared as it had hardly
            begun: it had not run for the order's quantum, or was protected after its launch.
    """

    ageing: int = 0
    hysteresis: int = 0
    protection: int = 0


class GuardCounter:
    """Told of every plan, see `scheduling.engine.guard_tally`."""

    def __init__(self) -> None:
        self._aged = 0
        self._kept: set[JobId] = set()
        self._held: set[JobId] = set()
        self._spared: set[JobId] = set()

    @property
    def counts(self) -> GuardCounts:
        """So far."""
        return GuardCounts(self._aged, len(self._held), len(self._spared))

    def keeps(self, context: SchedulingContext, job: Job) -> None:
        """Others would have those GPUs where there are any that may pass it."""
        if context.skips_hopeless and any(other.id != job.id for other in _in_order(context)):
            self._kept.add(job.id)

    def asks_urgent(self, context: SchedulingContext, job: Job) -> bool:
        """It is where it is not the next by the order alone, or had GPUs kept for it."""
        if job.id in self._kept:
            return True
        first = next(_in_order(context), None)
        return first is not None and first.id != job.id

    def serves_urgent(self, job: Job) -> None:
        self._aged += 1
        self._kept.discard(job.id)

    def waits(self, context: SchedulingContext) -> None:
        """Look at the first that was left, once of each kind."""
        job = next(_in_order(context), None)
        if job is None or (job.id in self._held and job.id in self._spared):
            return
        queue, now_s = context.queue, context.draft.now_s
        rank = queue.rank(job)
        for other in _stoppable(context):
            theirs = queue.rank(other)
            if other.state not in MOVABLE or ran_since_s(other) + queue.quantum_s > now_s:
                if queue.displaces(rank, theirs):
                    self._spared.add(job.id)
            elif queue.gain_min > 1 and not queue.displaces(rank, theirs) and by_gain(1.0, rank, theirs):
                self._held.add(job.id)


def _in_order(context: SchedulingContext) -> Iterator[Job]:
    """Jobs in the order of the policy for which nothing is decided."""
    draft = context.draft
    classes = draft.view.queue(context.pool).classes
    for job in context.queue.walk(lambda: classes):
        if draft.is_undecided(job.id):
            yield job


def _stoppable(context: SchedulingContext) -> Iterator[Job]:
    """Jobs on GPUs of the pool that save their state, and for which nothing is decided."""
    view = context.draft.view
    for node in view.nodes.values():
        for job_id in node.jobs if node.node.pool == context.pool else ():
            job = view.jobs[job_id]
            may_go = job.effective.preemptible and not job.is_leaving and context.draft.is_undecided(job_id)
            if job.gpus_held and may_go:
                yield job
