"""Parking a job on a plan's word: it gives its GPUs up for others while its process lives, and comes back later.

It waits at its next step boundary, as a suspended job does, and its GPU memory is moved to the host; on cpu devices,
whose memory is the host's, waiting alone frees the device. Once its agent says so, its GPUs are free, and it waits in
its pool's queue like others: in a class of need of its own home, for its process cannot leave its node, and the driver
restores its memory to the GPU it left alone. It gives its cores up as well, and gets some when it comes back.
"""

from __future__ import annotations

from colane.core.cluster.state import ClusterState
from colane.core.cluster.to_host import is_on_cpu_devices
from colane.core.lifecycle import move
from colane.core.reducers.step import Step
from colane.core.reducers.timers import TimerKind
from colane.model.job import Job, JobState, OnHost, Parking, SuspendVia, Suspension
from colane.model.placement import Placement
from colane.model.plan import Move, Park
from colane.model.progress import ASKS, Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of

# -- leaving the GPUs


def park(step: Step, job: Job, action: Park) -> None:
    """Let a job wait at its next step boundary; it holds its GPUs until its agent says that it has left them."""
    # Steps from now on are made without co-runners: what they taught so far is learnt first.
    step.co_runners_changed(job.gpus_held)
    parked = move(job, JobState.PAUSED, step.now_s, action.reason)
    parked.parking = Parking(action.for_job)
    step.put(parked)


def memory_moved(step: Step, job: Job, progress: Progress) -> Job:
    """Believe an agent that a job's memory is on the host, or cannot be moved there; other samples change nothing."""
    if job.suspension is not None and job.suspension.until_step and progress.rest == ASKS:
        return _step_again(step, job)
    if not job.is_leaving_gpus or job.placement is None:
        return job
    if progress.on_host_bytes is not None:
        others = {other for gpu in job.gpus_held for other in step.state.gpus[gpu].jobs} - {job.id}
        step.co_runners_changed(job.gpus_held)
        left_beside = () if _left_for_their_sake(job) else tuple(sorted(others))
        reason = off_its_gpus(step.state, job, progress.on_host_bytes, job.suspension)
        left = move(job, JobState.PAUSED, step.now_s, reason)
        left.on_host = OnHost(progress.on_host_bytes, left_beside)
        if job.parking is not None:
            left.parking = Parking(home=_home(step.state, job))
        step.rebook(left)
        return left
    if progress.host_refusal:
        return _stay(step, job, progress.host_refusal)
    return job


def _step_again(step: Step, job: Job) -> Job:
    """One that was parked while it was idle would step: it waits for GPUs, or goes on at once where it has not left."""
    reason = Reason(Why.STEPS_AGAIN)
    if job.state is not JobState.PAUSED:
        return job
    if job.on_host is None:
        return go_on(step, job, reason)
    waits = not_suspended(move(job, JobState.PAUSED, step.now_s, reason))
    step.put(waits)
    return waits


def _left_for_their_sake(job: Job) -> bool:
    """Whether it was parked for no newcomer: then it goes better without those it left."""
    return job.parked and job.preempted_for is None


def _home(state: ClusterState, job: Job) -> str:
    """Where it may go on: on any device of its node where none of its memory lies on a GPU, else on its GPU alone."""
    placement = job.placement
    if placement is None:
        return ""
    return placement.node if is_on_cpu_devices(state, job) else str(placement.gpus[0])


def off_its_gpus(state: ClusterState, job: Job, size_bytes: int, suspension: Suspension | None) -> Reason:
    """Why a job waits without its GPUs, and where its memory is."""
    gpu = str(job.placement.gpus[0]) if job.placement is not None else ""
    if is_on_cpu_devices(state, job):
        return _off_cpu_devices(job, gpu, suspension)
    was = "" if job.reason is None else sentence_of(job.reason)
    if suspension is not None and suspension.until_step:
        was = f"parked by {suspension.by}, it comes back once it would step again"
    elif suspension is not None:
        was = f"suspended by {suspension.by}"
    return Reason(Why.MOVED_TO_HOST, {"size_bytes": size_bytes, "gpu": gpu, "was": was})


def _off_cpu_devices(job: Job, gpu: str, suspension: Suspension | None) -> Reason:
    """Nothing of it was moved: the memory of cpu devices is the host's."""
    if suspension is not None and suspension.until_step:
        return Reason(Why.IDLE_OFF_GPU, {"gpu": gpu})
    if suspension is not None or job.reason is None:
        return Reason(Why.SUSPENDED_OFF_GPU, {"by": "" if suspension is None else suspension.by, "gpu": gpu})
    for_job = () if job.preempted_for is None else (job.preempted_for,)
    because = job.reason.facts.get("because", sentence_of(job.reason))
    return Reason(Why.DEVICE_GIVEN_UP, {"because": because, "gpu": gpu}, job.reason.jobs or for_job)


def _stay(step: Step, job: Job, problem: str) -> Job:
    """Its memory cannot be moved: a suspended job waits on its GPU, one that was only parked goes on at once."""
    if job.suspension is None or job.suspension.until_step:
        return go_on(step, job, Reason(Why.NOT_PARKED, {"problem": problem}), host_refusal=problem)
    reason = Reason(Why.NOT_MOVED, {"problem": problem, "was": f"suspended by {job.suspension.by}"})
    stays = move(job, JobState.PAUSED, step.now_s, reason)
    stays.suspension, stays.parking = job.suspension._replace(via=SuspendVia.LANE), None
    stays.run = stays.run._replace(host_refusal=problem)
    step.put(stays)
    return stays


# -- coming back


def come_back(step: Step, job: Job, action: Move) -> None:
    """Let a parked job go on at that placement of its node; it is left alone for as long as after a launch."""
    launch_s = job.first_step_s - job.start_s if job.first_step_s is not None and job.start_s is not None else 0.0
    protected_s = step.config.protection_factor * max(0.0, launch_s)
    to = JobState.RUNNING_PROTECTED if protected_s > 0 else JobState.RUNNING
    go_on(step, job, action.reason, to, action.placement)
    if to is JobState.RUNNING_PROTECTED:
        step.timers.set(step.now_s + protected_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)


def go_on(
    step: Step, job: Job, reason: Reason, to: JobState = JobState.RUNNING, placement: Placement | None = None, *,
    host_refusal: str = "",
) -> Job:  # fmt: skip
    """Let a paused job step again; what was learnt of its co-runners so far is recorded first."""
    step.co_runners_changed(job.placement.gpus if job.placement is not None else ())
    goes_on = move(job, to, step.now_s, reason)
    if placement is not None:
        goes_on.placement = placement
    if host_refusal:
        goes_on.run = goes_on.run._replace(host_refusal=host_refusal)
    if job.on_host is not None:
        step.rebook(goes_on)
    else:
        step.put(goes_on)
    step.set_limit_timer(goes_on)
    return goes_on


def not_suspended(job: Job) -> Job:
    """The job without its suspension: what else keeps it from going on stands."""
    fresh = job.copied()
    fresh.suspension = None
    return fresh
