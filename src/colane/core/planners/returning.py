"""Bringing resumed jobs back whose memory was moved to the host, each to the GPU that is kept for it."""

from __future__ import annotations

from collections.abc import Container

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.model.plan import Move, Plan
from colane.model.reason import Reason, Why


class Returns:
    """Lets jobs go on whose memory waits on the host for their GPUs, where these have room now; the oldest first."""

    name = "returns"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def plan(self, view: ClusterView) -> Plan:
        """Move back the jobs that have room."""
        draft, loads, decided = Draft(view), dict[GpuId, GpuLoad](), set[JobId]()
        for job in map(view.job, sorted(self._state.returning)):
            gpu = gpu_of(job)
            load = loads.get(gpu) or self._state.gpus.get(gpu)
            back = None if load is None else returned(self._state, load, job, decided)
            if back is not None and job.placement is not None:
                loads[gpu] = back
                decided.add(job.id)
                draft.act(Move(job.id, job.placement, _reason(job)))
        return draft.plan()


def _reason(job: Job) -> Reason:
    by = job.reason.facts.get("by", "") if job.reason is not None else ""
    return Reason(Why.RETURNED, {"by": by, "size_bytes": job.on_host_bytes or 0, "gpu": str(gpu_of(job))})


def returned(state: ClusterState, load: GpuLoad, job: Job, decided: Container[JobId]) -> GpuLoad | None:
    """Its GPU with the job back on it; None when it has no room for it now.

    It has room when only jobs it left are there, all may still share, all of them fit, and those that have waited
    for this GPU longer come back before (`decided`).
    """
    beside = set(load.jobs) <= {*job.left_beside, *[other for other in load.jobs if other in decided]}
    if job.placement is None or not load.gpu.healthy or not beside:
        return None
    if any(other < job.id and other not in decided for other in load.returning):
        return None
    back = load.with_booking(state.booking(job, load.gpu.type, job.placement.slots[0].lane))
    if not load.bookings:
        return back if (job.on_host_bytes or 0) <= load.capacity_bytes else None
    if not all(booking.share or booking.measurement_group is not None for booking in back.bookings):
        return None  # one was given its GPU alone since
    return back if back.needed_bytes is not None and back.needed_bytes <= load.capacity_bytes else None


def gpu_of(job: Job) -> GpuId:
    """The GPU of a job whose memory is on the host: such a job has one."""
    assert job.placement is not None  # noqa: S101 - for the type checker
    return job.placement.gpus[0]


def on_its_gpu(state: ClusterState, job: Job) -> tuple[JobId, ...]:
    """The jobs on its GPU now."""
    load = state.gpus.get(gpu_of(job))
    return load.jobs if load is not None else ()
