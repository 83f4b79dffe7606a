"""Suspending a job and letting it go on, at a user's request.

A running job waits at its next step boundary: its memory stays, its GPUs stay booked, and the safety condition goes on
counting it. If asked, its memory is moved to the host besides: once its agent says that it is there, the job's GPUs are
free for others. It comes back to the same GPU, for the driver restores nowhere else: when that is free, or carries none
but those it left there; from the moment it is resumed until then no other job starts on it. A waiting job is held: it
keeps its place in line and does not start; one that is launching leaves its GPUs, and is held.
"""

from __future__ import annotations

from colane.core.cluster.state import ClusterState
from colane.core.cluster.to_host import is_on_cpu_devices, no_boundary, no_way_to_host
from colane.core.eligibility import hold_reason, with_hold, without
from colane.core.events import ResumeRequested, SuspendRequested
from colane.core.lifecycle import move
from colane.core.planners.returning import gpu_of, on_its_gpu
from colane.core.reducers import arrays, checkpointing
from colane.core.reducers.parking import go_on, not_suspended, off_its_gpus
from colane.core.reducers.step import Step
from colane.core.reducers.timers import TimerKind
from colane.model.job import Job, JobState, Leaving, SuspendVia, Suspension
from colane.model.phases import COMING_UP, LEAVING, STEPPING, Hold, HoldKind, is_in
from colane.model.progress import Progress
from colane.model.reason import Reason, Why

# -- what is refused


def refusal(state: ClusterState, job: Job, progress: Progress | None, via: SuspendVia = SuspendVia.LANE) -> str | None:
    """Why a live job cannot be suspended now, in one line; None when it can, or is already.

    Args:
        state: Where it runs.
        job: The job, as it is known by now.
        progress: Its latest sample.
        via: Whether its memory shall be moved to the host.
    """
    if _is_done(job, via) and (job.state not in LEAVING or job.ending is JobState.QUEUED):
        return None
    on_host = job.state is JobState.PAUSED and (job.is_on_host or job.parked)
    if job.spec.measurement_group is None and (job.state is JobState.QUEUED or job.state in COMING_UP or on_host):
        return None
    if job.state is not JobState.QUEUED and job.state not in STEPPING and job.state is not JobState.PAUSED:
        return f"job {job.id} {is_in(job.state)}; only a job that waits or runs can be suspended"
    problem = no_boundary(state, job, progress)
    if problem is not None:
        return f"{problem}; cancel it instead"
    return _no_way_to_host(state, job) if via is SuspendVia.HOST else None


def _no_way_to_host(state: ClusterState, job: Job) -> str | None:
    """Parking on cpu devices moves nothing; a user who asks for a move there is told so."""
    if is_on_cpu_devices(state, job):
        return f"job {job.id} runs on a cpu device, whose memory is the host's: suspend it without --to-host"
    problem = no_way_to_host(state, job)
    return None if problem is None else f"{problem}; suspend it without --to-host"


def _is_done(job: Job, via: SuspendVia) -> bool:
    """Whether it is suspended as is asked for, or more."""
    if job.state is JobState.QUEUED:
        return job.is_held(HoldKind.USER)
    if job.suspension is not None and job.suspension.until_step:
        return False  # what its owner asks for holds also once it would step again
    return job.suspended and (via is SuspendVia.LANE or job.suspended_via is via or job.ending is JobState.QUEUED)


# -- suspending


def suspend_requested(step: Step, event: SuspendRequested) -> None:
    """Hold a waiting job, pause a running one; nothing for one that is suspended already."""
    job = step.state.jobs.get(event.job) or arrays.touch(step, event.job)
    progress = step.state.progress.get(event.job)
    for element in arrays.jobs_of(step, job):
        if refusal(step.state, element, step.state.progress.get(element.id), event.via) is None:
            suspend_requested(step, event._replace(job=element.id))
    problem = "no such live job" if job is None else refusal(step.state, job, progress, event.via)
    if job is None or problem is not None:
        step.stale.append((event, problem or ""))
    elif _is_done(job, event.via):
        return
    elif job.state is JobState.QUEUED:
        held = job.with_holds(with_hold(job, Hold(HoldKind.USER, event.by)))
        if held.constraints.promised is not None:
            held = held.under(held.constraints._replace(promised=None))
        step.put(move(held, JobState.QUEUED, step.now_s, hold_reason(held)))
    elif job.state in COMING_UP:  # it has made nothing yet, nor is it at a boundary soon
        reason = Reason(Why.SUSPENDED_LAUNCHING, {"by": event.by})
        checkpointing.part(step, job, reason, Leaving(JobState.QUEUED, is_requeued=True))
        leaves = step.state.jobs[job.id].copied()
        leaves.suspension = Suspension(SuspendVia.LANE, event.by)
        step.put(leaves)
    else:
        _pause(step, job, event)


def _pause(step: Step, job: Job, event: SuspendRequested) -> None:
    if job.state is not JobState.PAUSED:
        # Steps from now on are made without co-runners: what they taught so far is learnt first.
        step.co_runners_changed(job.gpus_held)
    via = SuspendVia.HOST if job.is_on_host or job.parked else event.via
    why = Why.SUSPENDED if via is SuspendVia.LANE else Why.SUSPENDED_TO_HOST
    reason, suspension = Reason(why, {"by": event.by}), Suspension(via, event.by)
    if job.on_host_bytes is not None:
        reason = off_its_gpus(step.state, job, job.on_host_bytes, suspension)
    paused = move(job, JobState.PAUSED, step.now_s, reason)
    paused.suspension = suspension
    step.put(paused)


# -- going on


def _release(step: Step, job: Job, event: ResumeRequested) -> None:
    """What its owner holds it for ends, or ends at a time; it goes on waiting for what others must do."""
    holds = without(job, HoldKind.USER, HoldKind.BEGIN)
    if event.begin is not None:
        holds = (*holds, event.begin)
    if holds == job.holds:
        return
    fresh = job.with_holds(holds)
    reason = Reason(Why.RESUMED, {"by": event.by}) if event.begin is None else hold_reason(fresh)
    step.put(move(fresh, JobState.QUEUED, step.now_s, reason))
    if event.begin is not None and event.begin.until_s is not None:
        step.timers.set(event.begin.until_s, TimerKind.HOLD_OVER, job.id, job.attempt)


def resume_requested(step: Step, event: ResumeRequested) -> None:
    """Let a suspended job go on; nothing for any other."""
    job = step.state.jobs.get(event.job) or arrays.touch(step, event.job)
    for element in arrays.jobs_of(step, job):
        if event.begin is None or element.state is JobState.QUEUED:
            resume_requested(step, event._replace(job=element.id))
    if job is None:
        step.stale.append((event, "no such live job"))
    elif job.state is JobState.QUEUED:
        _release(step, job, event)
    elif not job.suspended:
        return
    elif job.state in LEAVING:
        step.put(not_suspended(job))
    elif job.parked:
        # it waits for GPUs as before, or goes on leaving them
        step.put(not_suspended(move(job, JobState.PAUSED, step.now_s, Reason(Why.RESUMED, {"by": event.by}))))
    elif job.on_host_bytes is None:
        go_on(step, job, Reason(Why.RESUMED, {"by": event.by}))
    else:
        facts: dict[str, str | int | float] = {"by": event.by, "size_bytes": job.on_host_bytes}
        reason = Reason(Why.RETURNING, facts | {"gpu": str(gpu_of(job))}, on_its_gpu(step.state, job))
        step.put(not_suspended(move(job, JobState.PAUSED, step.now_s, reason)))
