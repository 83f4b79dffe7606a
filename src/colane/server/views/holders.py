"""Which jobs are on which devices."""

from __future__ import annotations

from colane.model.hardware import GpuId
from colane.model.job import Job
from colane.server.writer.board import ReadModel


def holders_of(read_model: ReadModel) -> dict[GpuId, list[Job]]:
    """Return the live jobs on each device that has some, in order of id."""
    found: dict[GpuId, list[Job]] = {}
    for job in read_model.jobs.values():
        if job.placement is not None:
            for gpu in job.gpus_held:
                found.setdefault(gpu, []).append(job)
    return found
