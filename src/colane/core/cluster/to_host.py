"""Whether a job that runs could wait at a step boundary, and whether its GPU memory can be moved to the host.

Plans that park jobs, users who suspend them and `check` all ask here, so that they give the same answer.
"""

from __future__ import annotations

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import ClusterContents
from colane.model.job import Job, JobKind, JobState
from colane.model.phases import is_in
from colane.model.progress import Progress


def no_boundary(state: ClusterContents, job: Job, progress: Progress | None = None) -> str | None:
    """Why a running job has no step boundary at which all of it could wait, in one line; None where it has.

    Args:
        state: Where it runs.
        job: The job.
        progress: Its latest sample, where that is newer than what the job's record tells.
    """
    if job.spec.measurement_group is not None:
        return f"job {job.id} is being measured together with others"
    if job.placement is not None and len(job.placement.nodes) > 1:
        return f"job {job.id} runs on several nodes, whose ranks cannot be stopped at one step yet"
    has_stepped = job.first_step_s is not None or (progress is not None and progress.steps > 0)
    if not has_stepped and not state.steps_unseen:
        note = f" ({progress.note})" if progress is not None and progress.note else ""
        return f"job {job.id} reports no steps{note}, so there is no step boundary at which it could wait"
    return None


def no_way_to_host(state: ClusterContents, job: Job, taken_bytes: int = 0) -> str | None:
    """Why the memory of a job on one node cannot be moved to the host, as far as is known here; None where it can.

    Args:
        state: Where it runs.
        job: The job.
        taken_bytes: Host memory of its node that is free and that others will take.
    """
    node = state.nodes.get(job.placement.node) if job.placement is not None else None
    if node is None or job.placement is None or not job.placement.slots:
        return f"job {job.id} has no GPU that it could give up"
    if is_on_cpu_devices(state, job):
        return None  # its memory is the host's already
    if len(job.placement.slots) > 1:
        several = f"job {job.id} runs on {len(job.placement.slots)} GPUs"
        return f"{several}; the driver moves only a single process on one GPU to the host"
    if node.node.host_refusal:
        return f"the GPU memory of job {job.id} cannot be moved to the host: {node.node.host_refusal}"
    need_bytes = bytes_to_move(state, job)
    have_bytes = node.host_memory_free_bytes - taken_bytes - _bytes_on_their_way(state, node, job)
    if node.node.host_memory_bytes and need_bytes > have_bytes:
        need, have = f"{need_bytes / 1e9:.3g} GB", f"{max(0, have_bytes) / 1e9:.3g} GB"
        return (
            f"job {job.id} needs {need} of host memory for what it has on its GPU, {have} are free on {node.node.name}"
        )
    return None


def _bytes_on_their_way(state: ClusterContents, node: NodeState, job: Job) -> int:
    """Host memory of a node that others will book, once their GPU memory is there."""
    others = [state.jobs[other] for other in node.jobs if other != job.id]
    return sum([bytes_to_move(state, other) for other in others if other.is_leaving_gpus])


def parking_refusal(state: ClusterContents, job: Job, taken_bytes: int = 0) -> str | None:
    """Why a plan may not park a live job now, in one line; None when it may.

    A plan does not ask again what the job's agent has refused, as it would ask for ever; a user may.
    """
    if job.spec.kind is JobKind.INFERENCE:
        return f"job {job.id} answers requests, so that no plan parks it"
    if job.state is not JobState.RUNNING or job.placement is None:
        return f"job {job.id} {is_in(job.state)}; only a job that runs and is not protected can be parked"
    problem = no_boundary(state, job)
    if problem is None and job.run.host_refusal:
        problem = f"the GPU memory of job {job.id} could not be moved to the host: {job.run.host_refusal}"
    return no_way_to_host(state, job, taken_bytes) if problem is None else problem


def bytes_to_move(state: ClusterContents, job: Job) -> int:
    """GPU memory that a running job holds between steps, as seen, else as believed.

    All of its GPU's where nothing is known of it, so that the host never runs short; 0 on cpu devices, whose memory is
    the host's.
    """
    if is_on_cpu_devices(state, job):
        return 0
    progress = state.progress.get(job.id)
    if progress is not None and progress.persistent_bytes is not None:
        return progress.persistent_bytes
    load = state.gpus.get(job.gpus_held[0]) if job.gpus_held else None
    memory = next((b.memory for b in load.bookings if b.job == job.id), None) if load is not None else None
    if memory is not None:
        return memory.persistent_bytes
    return load.gpu.memory_bytes if load is not None else 0


def is_on_cpu_devices(state: ClusterContents, job: Job) -> bool:
    """Whether all devices at a job's placement are cpu devices, and there are some."""
    node = None if job.placement is None else state.nodes.get(job.placement.node)
    if node is None or job.placement is None:
        return False
    numbers = {gpu.number for gpu in job.placement.gpus if gpu.node == node.node.name}
    kinds = {gpu.is_cpu_device for gpu in node.node.gpus if gpu.index in numbers}
    return kinds == {True}
