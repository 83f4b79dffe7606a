"""The earliest time at which a job that finds no place now is sure to find one, and what may run before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.state import NodeState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.plan import Start
from colane.policies.blocks.placers import on_node
from colane.policies.blocks.times import RunTimes, gpu_type_of


@dataclass(slots=True)
class Reservation:
    """A node a job will find room on, from when, and what is left there beside it from then on.

    `at_s` is by the bounds on run times; it lies in the past while jobs run longer than their bounds, and is
    infinite where the bound of a job in the way is unknown.
    """

    node: NodeState
    gpu_type: str
    at_s: float
    spare_gpus: int
    spare_cores: int
    spare_host_memory_bytes: int

    def allows(self, spec: JobSpec, gpu_type: str, end_s: float | None) -> bool:
        """Whether a job may start on the node: it ends before, or is small enough to stay."""
        if end_s is not None and end_s <= self.at_s:
            return True
        gpus = spec.gpus if gpu_type == self.gpu_type else 0
        fits = gpus <= self.spare_gpus and spec.cores <= self.spare_cores
        return fits and spec.host_memory_bytes <= max(0, self.spare_host_memory_bytes)

    def use(self, spec: JobSpec, gpu_type: str, end_s: float | None) -> None:
        """A job starts on the node."""
        if end_s is None or end_s > self.at_s:
            self.spare_gpus -= spec.gpus if gpu_type == self.gpu_type else 0
            self.spare_cores -= spec.cores
            self.spare_host_memory_bytes -= spec.host_memory_bytes


class Ends:
    """When running jobs, those just started among them, end at the latest."""

    def __init__(self, draft: Draft, times: RunTimes) -> None:
        self._draft = draft
        self._times = times
        self._ends: dict[JobId, float] = {}
        self._started: dict[str, list[Job]] = {}
        for action in draft.actions:
            if isinstance(action, Start):
                job = draft.view.job(action.job)
                gpu_type = draft.view.gpu(action.placement.gpus[0]).gpu.type
                bound_s = times.bound_s(job.spec, gpu_type)
                self._ends[job.id] = inf if bound_s is None else draft.now_s + bound_s
                self._started.setdefault(action.placement.node, []).append(job)

    def of(self, job: Job) -> float:
        """Decision to start plus bound; infinity when no bound is known.

        It never changes while the job runs, so that time alone never lets a job pass that could not before.
        """
        if job.id not in self._ends:
            self._ends[job.id] = self._work_out(job)
        return self._ends[job.id]

    def jobs_on(self, node: NodeState) -> list[Job]:
        """Jobs of a node, those just started among them."""
        return [*map(self._draft.view.job, node.jobs), *self._started.get(node.node.name, ())]

    def _work_out(self, job: Job) -> float:
        bound_s = self._times.bound_s(job.spec, gpu_type_of(self._draft.view, job))
        if bound_s is None:
            return inf
        assigned_s = next(line.at_s for line in reversed(job.story) if line.state is JobState.ASSIGNED)
        return assigned_s + bound_s


def reserve(draft: Draft, spec: JobSpec, times: RunTimes) -> Reservation | None:
    """The node that has room for a job first; None when none ever has."""
    ends = Ends(draft, times)
    best: Reservation | None = None
    nodes = sorted(draft.view.nodes.values(), key=lambda node: node.order)
    for node in nodes:
        if node.node.pool != spec.pool or not _is_large_enough(node, spec):
            continue
        jobs = ends.jobs_on(node)
        for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
            found = _on_node(draft, spec, node, kind, jobs, ends)
            if found is not None and (best is None or found.at_s < best.at_s):
                best = found
    return best


def _is_large_enough(node: NodeState, spec: JobSpec) -> bool:
    enough = len(node.node.gpus) >= spec.gpus and len(node.node.cores) >= spec.cores
    return enough and node.node.host_memory_bytes >= spec.host_memory_bytes


def _on_node(
    draft: Draft, spec: JobSpec, node: NodeState, kind: str, jobs: list[Job], ends: Ends
) -> Reservation | None:
    by_id = {job.id: ends.of(job) for job in jobs}
    gpus = [gpu for gpu in node.node.gpus if gpu.type == kind and gpu.healthy]
    loads = [draft.load(GpuId(node.node.name, gpu.index)) for gpu in gpus]
    free_at_s = sorted(_free_at_s(load, by_id) for load in loads if draft.fits_alone(load, spec))
    if len(free_at_s) < spec.gpus:
        return None
    at_s = free_at_s[spec.gpus - 1]
    cores = len(draft.cores_free(node))
    host_bytes = draft.host_memory_free_bytes(node)
    for job in sorted(jobs, key=lambda job: (by_id[job.id], job.id)):
        if by_id[job.id] > at_s and cores >= spec.cores and host_bytes >= spec.host_memory_bytes:
            break
        at_s = max(at_s, by_id[job.id])
        cores += job.spec.cores
        host_bytes += job.spec.host_memory_bytes
    if cores < spec.cores or host_bytes < spec.host_memory_bytes:
        return None
    spare = sum(free_s <= at_s for free_s in free_at_s) - spec.gpus
    return Reservation(node, kind, at_s, spare, cores - spec.cores, host_bytes - spec.host_memory_bytes)


def _free_at_s(load: GpuLoad, ends: Mapping[JobId, float]) -> float:
    return max((ends[booking.job] for booking in load.bookings), default=-inf)


def backfill(
    draft: Draft, job: Job, reservation: Reservation, times: RunTimes
) -> tuple[tuple[GpuLoad, ...] | None, bool]:
    """Free GPUs for a job that does not delay a reservation.

    Returns:
        The GPUs, None when there are none; and whether there would have been some without the reservation.
    """
    spec, barred = job.spec, False
    for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
        bound_s = times.bound_s(spec, kind)
        end_s = None if bound_s is None else draft.now_s + bound_s
        for order in draft.free((spec.pool, kind)).nodes_with(spec.gpus):
            node = draft.view.node_at(order)
            gpus = on_node(draft, spec, kind, node)
            if gpus is None:
                continue
            if node is not reservation.node:
                return gpus, True
            if reservation.allows(spec, kind, end_s):
                reservation.use(spec, kind, end_s)
                return gpus, True
            barred = True
    return None, barred
