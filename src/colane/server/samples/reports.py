"""What of an agent's report is sampled."""

from __future__ import annotations

from collections.abc import Iterable

from colane.api.wire_nodes import ReportBody
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.job import Job, JobId
from colane.server.samples.idle import IdleWatch, JobSeen
from colane.server.samples.keeper import SampleKeeper


def take_idle(idle: IdleWatch, node: str, now_s: float, body: ReportBody, jobs: Iterable[Job]) -> None:
    """Note which of a node's jobs use what they hold; a job without a sample is taken to."""
    attempts = {job.id: job.attempt for job in jobs}
    for told in body.jobs:
        if attempts.get(JobId(told.id)) == told.attempt:
            progress, busy_ratio = told.progress, None if told.use is None else told.use.get("busy_ratio")
            steps, turn = (0, "") if progress is None else (progress.get("steps", 0), progress.get("turn", ""))
            idle.take(node, told.id, now_s, JobSeen(told.attempt, steps, busy_ratio, turn))


def take(samples: SampleKeeper, node: str, now_s: float, body: ReportBody, jobs: Iterable[Job]) -> None:
    """Sample the devices of a node, and of its jobs those whose attempt is believed to run there."""
    attempts = {job.id: job.attempt for job in jobs}
    uses = {
        told.id: JobUsage(**told.use)
        for told in body.jobs
        if told.use is not None and attempts.get(JobId(told.id)) == told.attempt
    }
    samples.take(node, now_s, [DeviceUsage(**told) for told in body.devices], uses)
