"""What of an agent's report is sampled."""

from __future__ import annotations

from collections.abc import Iterable

from colane.api.wire_nodes import DeviceUseBody, ReportBody
from colane.model.device_use import DeviceUsage, JobUsage
from colane.model.job import Job, JobId
from colane.server.samples.keeper import SampleKeeper


def take(samples: SampleKeeper, node: str, now_s: float, body: ReportBody, jobs: Iterable[Job]) -> None:
    """Sample the devices of a node, and of its jobs those whose attempt is believed to run there."""
    attempts = {job.id: job.attempt for job in jobs}
    uses = {
        told.id: JobUsage(**told.use.__dict__)
        for told in body.jobs
        if told.use is not None and attempts.get(JobId(told.id)) == told.attempt
    }
    samples.take(node, now_s, [_use(device) for device in body.devices], uses)


def _use(told: DeviceUseBody) -> DeviceUsage:
    words = None if told.throttle is None else tuple(told.throttle)
    return DeviceUsage(**{**told.__dict__, "throttle": words})
