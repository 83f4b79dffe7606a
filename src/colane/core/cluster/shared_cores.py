"""The part of a node's cores that belongs to jobs with GPUs that have booked none and share what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId


def shared_part(node: NodeState, jobs: Mapping[JobId, Job], load: Callable[[GpuId], GpuLoad]) -> int:
    """Cores of a node for the GPUs whose jobs have none of their own; of one that jobs share, for their part of it."""
    gpus = 0.0
    for job_id in node.jobs:
        job = jobs[job_id]
        if job.placement is None or job.placement.cores_on(node.node.name):
            continue
        for gpu in job.gpus_held:
            if gpu.node == node.node.name:
                gpus += 1.0 / max(1, len(load(gpu).bookings))
    return int(len(node.node.cores) * gpus / max(1, len(node.ids)))
