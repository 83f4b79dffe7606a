"""Sets under measurement: jobs started together on one GPU with no others (`colane profile --together`).

Measuring is not scheduling, so no policy has to know of it: complete sets are placed before the policy is asked.
"""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.model.resources import Resources, host_needs


class MeasuredSets:
    """Starts every complete set for which a GPU is free; the members of others wait with their reason."""

    name = "measured-sets"

    @staticmethod
    def plan(view: ClusterView) -> Plan:
        """Starts of the sets that are whole and find a free GPU."""
        draft = Draft(view)
        for pool in view.pools:
            sets: dict[tuple[str | None, str], list[Job]] = {}
            for job in map(view.job, view.queue(pool).measurement_groups):
                sets.setdefault((job.spec.measurement_group, job.effective.sharing_domain), []).append(job)
            for jobs in sets.values():
                _place(draft, jobs)
        return draft.plan()


def _place(draft: Draft, jobs: list[Job]) -> None:
    need = jobs[0].spec.measurement_group_size
    if len(jobs) < need:
        _wait(draft, jobs, Reason(Why.GROUP_INCOMPLETE, {"have": len(jobs), "need": need}))
        return
    spec = jobs[0].effective
    free = [load for kind in draft.view.gpu_types_for(spec) for load in _free(draft, spec.pool, kind)]
    load = next((load for load in free if _fits(draft, jobs, load)), None)
    if load is not None:
        _start(draft, jobs, load)
    else:
        _wait(draft, jobs, _lacking(draft, jobs, free))


def _free(draft: Draft, pool: str, gpu_type: str) -> Iterator[GpuLoad]:
    for order in draft.free((pool, gpu_type)).nodes_with(1):
        yield from draft.free_gpus(draft.view.node_at(order), gpu_type)


def _fits(draft: Draft, jobs: list[Job], load: GpuLoad) -> bool:
    """Whether the whole set has room: known GPU memory, cores, host memory and its bandwidth."""
    has_memory = _need_bytes(draft, jobs, load.gpu.type) <= load.capacity_bytes
    may_use = draft.may_use(draft.view.nodes[load.id.node], jobs[0].effective)
    return may_use and has_memory and _host_needs(jobs) <= draft.host_free(draft.view.nodes[load.id.node])


def _host_needs(jobs: list[Job]) -> Resources:
    return sum([host_needs(job.effective, job.effective.gpus) for job in jobs], Resources())


def _need_bytes(draft: Draft, jobs: list[Job], gpu_type: str) -> int:
    known = (draft.beliefs.terms(job.effective, gpu_type).memory for job in jobs)
    return sum(sum(memory) for memory in known if memory is not None)


def _lacking(draft: Draft, jobs: list[Job], free: list[GpuLoad]) -> Reason:
    spec, holders = jobs[0].effective, draft.view.holders(jobs[0].spec.pool)
    if not free:
        facts: dict[str, str | int | float] = {"need": 1, "gpu_type": spec.gpu_type or "any", "have": 0}
        return Reason(Why.NO_FREE_GPU, facts, holders)
    largest = max(free, key=lambda load: (load.capacity_bytes, load.id))
    need = _need_bytes(draft, jobs, largest.gpu.type)
    if need > largest.capacity_bytes:
        return Reason(Why.NO_MEMORY, {"need_bytes": need, "have_bytes": largest.capacity_bytes}, holders)
    asked, left = _host_needs(jobs), [draft.host_free(draft.view.nodes[load.id.node]) for load in free]
    cores = max(one.cores for one in left)
    if asked.cores > cores:
        return Reason(Why.NO_CORES, {"need": asked.cores, "have": cores}, holders)
    have_bytes = max(one.host_memory_bytes for one in left)
    bandwidth, have_bandwidth = asked.host_bandwidth_bytes_per_s, max(one.host_bandwidth_bytes_per_s for one in left)
    if asked.host_memory_bytes <= have_bytes and bandwidth > have_bandwidth:
        facts = {"need_bytes": int(bandwidth), "have_bytes": int(have_bandwidth)}
        return Reason(Why.NO_HOST_BANDWIDTH, facts, holders)
    return Reason(Why.NO_HOST_MEMORY, {"need_bytes": asked.host_memory_bytes, "have_bytes": have_bytes}, holders)


def _start(draft: Draft, jobs: list[Job], load: GpuLoad) -> None:
    reason = Reason(Why.MEASURED_TOGETHER, {"need": len(jobs), "gpu": str(load.id)}, tuple(j.id for j in jobs))
    for job in jobs:
        draft.start(job, [draft.load(load.id)], reason)


def _wait(draft: Draft, jobs: list[Job], reason: Reason) -> None:
    for job in jobs:
        draft.wait(job.id, reason)
