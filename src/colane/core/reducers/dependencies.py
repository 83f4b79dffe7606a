"""Jobs that wait for others: let go when their conditions are met, cancelled or held when they never can be.

A condition is a hold of its own (`HoldKind.AFTER`), so policies see none of these jobs. The state keeps for each job
which jobs wait for it; a job that starts or ends costs as much as jobs wait for it, however many there are in all.
"""

from __future__ import annotations

from colane.core.eligibility import with_hold
from colane.core.events import DependenciesEnded
from colane.core.lifecycle import move
from colane.core.reducers import arrays
from colane.core.reducers.step import Step
from colane.model.job import Job, JobState
from colane.model.job_spec import IfNever
from colane.model.phases import Hold, HoldKind
from colane.model.reason import Reason, Why


def enter(step: Step, job: Job) -> None:
    """A job that waits for others has entered the queue, perhaps in the step in which one of those ends."""
    for hold in job.holds:
        if hold.after is not None:
            step.state.dependents.setdefault(hold.after.job, {})[job.id] = None
            step.look_at_dependents(hold.after.job)


def ended(step: Step, event: DependenciesEnded) -> None:
    """Jobs that the state does not know any more, and for which jobs that have entered in this step wait."""
    step.moved_on.extend(event.jobs)


def settle(step: Step) -> None:
    """Judge the jobs that wait for those that have started or ended since."""
    while step.moved_on:
        moved = step.moved_on.pop()
        waiting = step.state.dependents.get(moved.id, {})
        for job_id in sorted(waiting):
            job = step.state.jobs.get(job_id)
            if job is not None:
                _judge(step, job, moved)
        if moved.has_ended:
            step.state.dependents.pop(moved.id, None)


def _judge(step: Step, job: Job, moved: Job) -> None:
    """Look at what a job waits for of one that has moved."""
    has_started, kept = moved.has_started, list[Hold]()
    for hold in job.holds:
        after = hold.after
        is_met = None
        if after is not None and after.job == moved.id:
            is_met = after.holds_for(moved.state, has_started=has_started)
            if is_met is False:
                _never(step, job, moved, hold)
                return
        if is_met is None:
            kept.append(hold)
    if len(kept) == len(job.holds):
        return
    fresh = job.with_holds(tuple(kept))
    if fresh.is_held(HoldKind.AFTER):
        step.put(fresh)
    else:
        step.put(move(fresh, JobState.QUEUED, step.now_s, Reason(Why.AFTER_MET, {"last": _named(moved)})))


def _named(job: Job) -> str | int:
    return job.id if job.element is None else job.said


def _never(step: Step, job: Job, moved: Job, hold: Hold) -> None:
    """What a job waits for cannot happen any more."""
    facts = {"other": _named(moved), "state": moved.state.value, "condition": str(hold.after)}
    if job.spec.if_never is IfNever.CANCEL:
        for element in arrays.cancel(step, job, (), Reason(Why.AFTER_NEVER, facts)):
            step.leave(element, JobState.CANCELLED, Reason(Why.AFTER_NEVER, facts))
        if job.array is None:
            step.leave(job, JobState.CANCELLED, Reason(Why.AFTER_NEVER, facts))
        return
    others = tuple([each for each in job.holds if each.kind is not HoldKind.AFTER])
    by = f"Colane: job {moved.said} has ended as {moved.state.value}, so {hold.after} never comes true"
    held = job.with_holds(others)
    held = held.with_holds(with_hold(held, Hold(HoldKind.USER, by)))
    step.put(move(held, JobState.QUEUED, step.now_s, Reason(Why.HELD, {"by": by})))
