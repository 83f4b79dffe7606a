"""GPUs that fall ill under running jobs: that is not the jobs' fault, so they are queued again within a limit."""

from __future__ import annotations

from typing import NamedTuple

from colane.core.reducers.step import Step
from colane.model.hardware import GpuId, Node
from colane.model.job import Job, JobState
from colane.model.reason import Reason, Why


class LossVerdict(NamedTuple):
    """Where a job goes that lost hardware, and why."""

    to: JobState
    reason: Reason


def lose_gpus(step: Step, before: Node, after: Node) -> None:
    """Stop the jobs on GPUs that have just fallen ill; their neighbours on other GPUs go on."""
    well = {gpu.index for gpu in before.gpus if gpu.healthy}
    ill = {gpu.index for gpu in after.gpus if not gpu.healthy and gpu.index in well}
    for job_id in sorted(step.state.nodes[after.name].jobs) if ill else ():
        job = step.state.jobs[job_id]
        slots = job.placement.slots_on(after.name) if job.placement is not None and job.home != after.name else ()
        hit = [slot.gpu for slot in slots if slot.gpu.number in ill]
        if hit:
            step.stop(job, *_verdict(step, job, hit[0]), is_loss=True)


def judge(step: Step, job: Job) -> LossVerdict | None:
    """Where a job goes whose process failed on an ill GPU; None when its GPUs are well, and the failure its own."""
    gpus = job.placement.gpus if job.placement is not None else ()
    ill = next((gpu for gpu in gpus if (load := step.state.gpus.get(gpu)) and not load.gpu.healthy), None)
    return None if ill is None else _verdict(step, job, ill)


def _verdict(step: Step, job: Job, gpu: GpuId) -> LossVerdict:
    spent = job.totals.losses >= step.config.node_losses_max
    return LossVerdict(JobState.FAILED if spent else JobState.QUEUED, Reason(Why.GPU_LOST, {"gpu": str(gpu)}))
