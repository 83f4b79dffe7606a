"""Suspending a job and letting it go on, on somebody's word.

A running job waits at its next step boundary: its memory stays, its GPUs stay booked, and the safety condition goes on
counting it. If asked, its memory is moved to the host besides: once its agent says that it is there, the job's GPUs are
free for others. It comes back to the same GPU, for the driver restores nowhere else: when that is free, or carries none
but those it left there; from the moment it is resumed until then nobody else starts on it. A waiting job is held: it
keeps its place in line and does not start.
"""

from __future__ import annotations

from colane.core.events import ResumeRequested, SuspendRequested
from colane.core.lifecycle import evolve, move, paused_s
from colane.core.state import ClusterState, NodeState
from colane.core.step import OFF_HOST, Step
from colane.core.timers import TimerKind
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState, SuspendVia
from colane.model.progress import Progress
from colane.model.reason import Reason, Why

STEPPING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})


# -- what is refused


def refusal(
    job: Job, progress: Progress | None, via: SuspendVia = SuspendVia.LANE, node: NodeState | None = None
) -> str | None:
    """Why a live job cannot be suspended now, in one line; None when it can, or is already.

    Args:
        job: The job.
        progress: Its latest sample.
        via: Whether its memory shall be moved to the host.
        node: Where it runs, None while it waits.
    """
    if _is_done(job, via) and job.state is not JobState.STOPPING:
        return None
    if job.spec.company is not None:
        return f"job {job.id} is being measured together with others; cancel it instead"
    if job.state is JobState.QUEUED or (job.state is JobState.PAUSED and job.is_on_host):
        return None
    if job.state not in STEPPING and job.state is not JobState.PAUSED:
        return f"job {job.id} is {job.state}; only a job that waits or steps can be suspended"
    problem = _no_boundary(job, progress)
    return _not_movable(job, progress, node) if problem is None and via is SuspendVia.HOST else problem


def _is_done(job: Job, via: SuspendVia) -> bool:
    """Whether it is suspended as is asked for, or more."""
    return job.suspended and (via is SuspendVia.LANE or job.suspended_via is via or job.state is JobState.QUEUED)


def _no_boundary(job: Job, progress: Progress | None) -> str | None:
    """Why a job that runs has no step boundary at which all of it could wait."""
    if job.placement is not None and len(job.placement.nodes) > 1:
        return f"job {job.id} runs on several nodes, whose ranks cannot be stopped at one step yet; cancel it instead"
    if progress is None or progress.steps == 0:
        note = f" ({progress.note})" if progress is not None and progress.note else ""
        return f"job {job.id} reports no steps{note}, so there is no step boundary at which it could wait"
    return None


def _not_movable(job: Job, progress: Progress | None, node: NodeState | None) -> str | None:
    """Why its memory cannot be moved to the host, as far as is known here; its agent knows the rest."""
    instead = "suspend it without --to-host"
    if job.spec.gpus > 1:
        text = f"job {job.id} runs on {job.spec.gpus} GPUs; the driver moves only a single process on one GPU"
        return f"{text} to the host: {instead}"
    if node is None or job.placement is None:
        return None
    gpu = next((gpu for gpu in node.node.gpus if gpu.index == job.placement.gpus[0].number), None)
    if gpu is not None and gpu.is_cpu_device:
        return f"job {job.id} runs on a cpu device, whose memory is the host's: {instead}"
    if node.node.host_refusal:
        return f"the GPU memory of job {job.id} cannot be moved to the host: {node.node.host_refusal}; {instead}"
    need_bytes = (progress.persistent_bytes if progress is not None else None) or 0
    have_bytes = node.host_memory_free_bytes
    if node.node.host_memory_bytes and need_bytes > have_bytes:
        text = f"job {job.id} needs {_gb(need_bytes)} of host memory for what it has on its GPU"
        return f"{text}, {_gb(max(0, have_bytes))} are free on {node.node.name}: {instead}"
    return None


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.3g} GB"


# -- suspending


def suspend_requested(step: Step, event: SuspendRequested) -> None:
    """Hold a waiting job, pause a running one; nothing for one that is suspended already."""
    job = step.state.jobs.get(event.job)
    node = step.state.nodes.get(job.placement.node) if job is not None and job.placement is not None else None
    progress = step.state.progress.get(event.job)
    problem = "no such live job" if job is None else refusal(job, progress, event.via, node)
    if job is None or problem is not None:
        step.stale.append((event, problem or ""))
    elif _is_done(job, event.via):
        return
    elif job.state is JobState.QUEUED:
        step.put(move(job, JobState.QUEUED, step.now_s, Reason(Why.HELD, {"by": event.by}), suspended=True))
    else:
        _pause(step, job, event)


def _pause(step: Step, job: Job, event: SuspendRequested) -> None:
    if job.state is not JobState.PAUSED:
        # Steps from now on are not the company's: what it taught so far is learnt first.
        step.company_changed(job.gpus_held)
    via = SuspendVia.HOST if job.is_on_host else event.via
    why = Why.SUSPENDED if via is SuspendVia.LANE else Why.SUSPENDED_TO_HOST
    reason = _moved(job, job.on_host_bytes) if job.on_host_bytes is not None else Reason(why, {"by": event.by})
    step.put(move(job, JobState.PAUSED, step.now_s, reason, suspended=True, suspended_via=via))
    step.heed(job.spec.pool)


def memory_moved(step: Step, job: Job, progress: Progress) -> Job:
    """Believe an agent that a job's memory is on the host, or cannot be moved there; other samples change nothing."""
    asked = job.state is JobState.PAUSED and job.suspended and job.suspended_via is SuspendVia.HOST
    if not asked or job.is_on_host or job.placement is None:
        return job
    if progress.on_host_bytes is not None:
        others = {other for gpu in job.gpus_held for other in step.state.gpus[gpu].jobs} - {job.id}
        step.company_changed(job.gpus_held)
        step.state.move_to_host(job, progress.on_host_bytes)
        changes = {"on_host_bytes": progress.on_host_bytes, "left_beside": tuple(sorted(others))}
        job = move(job, JobState.PAUSED, step.now_s, _moved(job, progress.on_host_bytes), **changes)
        step.put(job)
    elif progress.host_refusal:
        reason = Reason(Why.NOT_MOVED, {"problem": progress.host_refusal, "was": _was(job)})
        job = move(job, JobState.PAUSED, step.now_s, reason, suspended_via=SuspendVia.LANE)
        step.put(job)
    return job


def _moved(job: Job, size_bytes: int) -> Reason:
    gpu = str(job.placement.gpus[0]) if job.placement is not None else ""
    return Reason(Why.MOVED_TO_HOST, {"size_bytes": size_bytes, "gpu": gpu, "was": _was(job)})


def _was(job: Job) -> str:
    return f"suspended by {_asked_by(job)}"


# -- going on


def resume_requested(step: Step, event: ResumeRequested) -> None:
    """Let a suspended job go on; nothing for any other."""
    job = step.state.jobs.get(event.job)
    if job is None:
        step.stale.append((event, "no such live job"))
    elif not job.suspended:
        return
    elif job.state is JobState.STOPPING:
        step.put(evolve(job, suspended=False))
    elif job.on_host_bytes is None:
        _resume(step, job, Reason(Why.RESUMED, {"by": event.by}))
    elif _may_return(step.state, job):
        _return(step, job, event.by)
    else:
        facts: dict[str, str | int | float] = {"by": event.by, "size_bytes": job.on_host_bytes}
        reason = Reason(Why.RETURNING, facts | {"gpu": str(_gpu_of(job))}, _on_its_gpu(step.state, job))
        step.put(move(job, JobState.PAUSED, step.now_s, reason, suspended=False))


def bring_back(step: Step) -> None:
    """Let jobs go on whose memory waits on the host for their GPUs, where these have room now; the oldest first."""
    for job_id in sorted(step.state.returning):
        job = step.state.jobs[job_id]
        if _may_return(step.state, job):
            _return(step, job, str(job.story[-1].reason.facts["by"]))


def _may_return(state: ClusterState, job: Job) -> bool:
    """Whether its GPU is free for it: nobody is there but whom it left, all may still share, and all of them fit."""
    load = state.gpus.get(_gpu_of(job))
    if load is None or job.placement is None or not load.gpu.healthy or not set(load.jobs) <= set(job.left_beside):
        return False
    if any(other < job.id for other in load.returning):
        return False
    if not load.bookings:
        return (job.on_host_bytes or 0) <= load.capacity_bytes
    lane = job.placement.slots[0].lane
    booked = load.with_booking(state.booking(job, load.gpu.type, lane))
    if not all(booking.share or booking.company is not None for booking in booked.bookings):
        return False  # one was given its GPU alone since
    return booked.needed_bytes is not None and booked.needed_bytes <= load.capacity_bytes


def _return(step: Step, job: Job, by: str) -> None:
    size_bytes = job.on_host_bytes or 0
    reason = Reason(Why.RETURNED, {"by": by, "size_bytes": size_bytes, "gpu": str(_gpu_of(job))})
    _resume(step, job, reason)
    step.state.move_to_gpus(step.state.jobs[job.id], size_bytes)


def _gpu_of(job: Job) -> GpuId:
    """The GPU of a job whose memory is on the host: such a job has one."""
    assert job.placement is not None  # noqa: S101 - for the type checker
    return job.placement.gpus[0]


def _on_its_gpu(state: ClusterState, job: Job) -> tuple[JobId, ...]:
    load = state.gpus.get(_gpu_of(job))
    return load.jobs if load is not None else ()


def _resume(step: Step, job: Job, reason: Reason) -> None:
    if job.state is JobState.QUEUED:
        step.put(move(job, JobState.QUEUED, step.now_s, reason, suspended=False))
        return
    step.company_changed(job.placement.gpus if job.placement is not None else ())
    job = move(job, JobState.RUNNING, step.now_s, reason, suspended=False, **OFF_HOST)
    step.put(job)
    if job.spec.time_limit_s is not None and job.start_s is not None:
        due_s = job.start_s + job.spec.time_limit_s + paused_s(job, step.now_s)
        step.timers.set(due_s, TimerKind.TIME_LIMIT, job.id, job.attempt)
    step.heed(job.spec.pool)


SUSPENSIONS = frozenset({Why.HELD, Why.SUSPENDED, Why.SUSPENDED_TO_HOST})


def held_reason(job: Job) -> Reason:
    """Why a suspended job in the queue does not start: who wanted that, whatever has happened to it since."""
    return Reason(Why.HELD, {"by": _asked_by(job)})


def _asked_by(job: Job) -> str:
    asked = [line.reason for line in job.story if line.reason.why in SUSPENSIONS]
    return str(asked[-1].facts["by"]) if asked else "its owner"
