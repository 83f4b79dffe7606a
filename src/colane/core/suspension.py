"""Suspending a job and letting it go on, on somebody's word.

A running job waits at its next step boundary: its memory stays, its GPUs stay booked, and the safety condition goes on
counting it. A waiting job is held: it keeps its place in line and does not start.
"""

from __future__ import annotations

from colane.core.events import ResumeRequested, SuspendRequested
from colane.core.lifecycle import evolve, move, paused_s
from colane.core.step import Step
from colane.core.timers import TimerKind
from colane.model.job import Job, JobState
from colane.model.progress import Progress
from colane.model.reason import Reason, Why

STEPPING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})


def refusal(job: Job, progress: Progress | None) -> str | None:
    """Why a live job cannot be suspended now, in one line; None when it can, or is already."""
    if job.suspended and job.state is not JobState.STOPPING:
        return None
    if job.spec.company is not None:
        return f"job {job.id} is being measured together with others; cancel it instead"
    if job.state is JobState.QUEUED:
        return None
    if job.state not in STEPPING:
        return f"job {job.id} is {job.state}; only a job that waits or steps can be suspended"
    return _no_boundary(job, progress)


def _no_boundary(job: Job, progress: Progress | None) -> str | None:
    """Why a job that runs has no step boundary at which all of it could wait."""
    if job.placement is not None and len(job.placement.nodes) > 1:
        return f"job {job.id} runs on several nodes, whose ranks cannot be stopped at one step yet; cancel it instead"
    if progress is None or progress.steps == 0:
        note = f" ({progress.note})" if progress is not None and progress.note else ""
        return f"job {job.id} reports no steps{note}, so there is no step boundary at which it could wait"
    return None


def suspend_requested(step: Step, event: SuspendRequested) -> None:
    """Hold a waiting job, pause a running one; nothing for one that is suspended already."""
    job = step.state.jobs.get(event.job)
    problem = "no such live job" if job is None else refusal(job, step.state.progress.get(job.id))
    if job is None or problem is not None:
        step.stale.append((event, problem or ""))
    elif job.suspended:
        return
    elif job.state is JobState.QUEUED:
        step.put(move(job, JobState.QUEUED, step.now_s, Reason(Why.HELD, {"by": event.by}), suspended=True))
    else:
        # Steps from now on are not the company's: what it taught so far is learnt first.
        step.company_changed(job.gpus_held)
        step.put(move(job, JobState.PAUSED, step.now_s, Reason(Why.SUSPENDED, {"by": event.by}), suspended=True))
        step.heed(job.spec.pool)


def resume_requested(step: Step, event: ResumeRequested) -> None:
    """Let a suspended job go on; nothing for any other."""
    job = step.state.jobs.get(event.job)
    if job is None:
        step.stale.append((event, "no such live job"))
    elif not job.suspended:
        return
    elif job.state is JobState.STOPPING:
        step.put(evolve(job, suspended=False))
    else:
        _resume(step, job, Reason(Why.RESUMED, {"by": event.by}))


def _resume(step: Step, job: Job, reason: Reason) -> None:
    if job.state is JobState.QUEUED:
        step.put(move(job, JobState.QUEUED, step.now_s, reason, suspended=False))
        return
    step.company_changed(job.gpus_held)
    job = move(job, JobState.RUNNING, step.now_s, reason, suspended=False)
    step.put(job)
    if job.spec.time_limit_s is not None and job.start_s is not None:
        due_s = job.start_s + job.spec.time_limit_s + paused_s(job, step.now_s)
        step.timers.set(due_s, TimerKind.TIME_LIMIT, job.id, job.attempt)
    step.heed(job.spec.pool)


def held_reason(job: Job) -> Reason:
    """Why a suspended job in the queue does not start: who wanted that, whatever has happened to it since."""
    asked = [line.reason for line in job.story if line.reason.why in (Why.HELD, Why.SUSPENDED)]
    return Reason(Why.HELD, {"by": asked[-1].facts["by"] if asked else "its owner"})
