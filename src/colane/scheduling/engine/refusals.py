"""Reasons for waiting, with numbers; the jobs in the way are named only when a user asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.planners.cpu_only import not_on_these
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.job_spec import is_among
from colane.model.reason import Reason, Why, nodes_drained
from colane.model.resources import host_needs, ranks_held


class Lacking(NamedTuple):
    """Which need of a job cannot be met on free GPUs."""

    reason: Reason  # what is said of it
    gpus: bool = False  # whether GPUs are lacking, not what comes with them: those that others use might do
    however_many: bool = False  # whether it would be lacking as well if no GPU was kept for any job


def refuse(draft: Draft, job: Job, spec: JobSpec) -> None:
    """The job finds no place at this size; why is worked out only when a user asks."""
    if draft.view.explain is not None:
        draft.wait(job.id, no_place(draft, spec).reason)


def behind(job: JobId) -> Reason:
    """Waits in order behind that job."""
    return Reason(Why.BEHIND, {}, (job,))


def no_place(draft: Draft, spec: JobSpec) -> Lacking:
    """Which need cannot be met on free GPUs: GPUs first, then memory, host memory, cores."""
    types, asked = draft.view.gpu_types_for(spec), draft.view.gpu_types(spec.pool, spec.gpu_type)
    if not asked:
        return Lacking(Reason(Why.NO_NODE, {"pool": spec.pool}), however_many=True)
    away = _drained(draft, spec, types)
    if away is not None:
        return Lacking(away)
    holders = draft.view.holders(spec.pool)
    if spec.nodes or spec.whole_node:
        return Lacking(not_on_these(draft, spec))
    if spec.multi_node and types:
        return Lacking(_no_gang(draft, spec, types, holders))
    have = max((draft.free((spec.pool, gpu_type)).most_free for gpu_type in types), default=0)
    if have < spec.gpus:
        facts: dict[str, str | int | float] = {"need": spec.gpus, "gpu_type": spec.gpu_type or "any", "have": have}
        is_any = types == asked
        return Lacking(Reason(Why.NO_FREE_GPU if is_any else Why.NO_FREE_WHOLE_GPU, facts, holders), gpus=is_any)
    beside = _no_host(draft, spec, types, holders)
    return Lacking(_memory(draft, spec, types, holders), however_many=True) if beside is None else Lacking(beside)


def _drained(draft: Draft, spec: JobSpec, types: Iterable[str]) -> Reason | None:
    """That every node that could ever run it is drained; None where one is not, or where there is none at all."""
    able = [node for node, ranks in _able(draft, spec, types) if ranks >= (1 if spec.multi_node else spec.gpus)]
    is_all = not any(node.node.takes_jobs for node in able)
    return nodes_drained([node.node.name for node in able]) if able and is_all else None


def _able(draft: Draft, spec: JobSpec, types: Iterable[str]) -> list[tuple[NodeState, int]]:
    """The nodes of its pool, each with as many ranks of a job as it could ever hold."""
    nodes = [node for node in draft.view.nodes.values() if node.node.pool == spec.pool]
    return [(node, max([ranks_held(node.node, spec, kind) for kind in types], default=0)) for node in nodes]


def waits_for_reserved(draft: Draft, job: Job) -> bool:
    """Whether a job waits for nodes that are reserved for others alone: on all that are left it could never run."""
    if not job.constraints.away:
        return False
    spec = job.effective
    able = _able(draft, spec, draft.view.gpu_types_for(spec))
    left = [ranks for node, ranks in able if is_among(spec.nodes, node.node.name)]
    return (sum(left) if spec.multi_node else max(left, default=0)) < spec.gpus


def not_joined(draft: Draft, spec: JobSpec, lacking: Lacking) -> Reason | None:
    """That others use the GPUs which a job that lacks a free one might have joined; None where there are no such."""
    may_share = lacking.gpus and spec.share and spec.gpus == 1
    kinds = draft.view.gpu_types_for(spec) if may_share else ()
    for load in _used_by_others(draft, spec.pool, kinds):
        if load.is_shareable and load.bookings:
            percent = round(100 * load.gpu.others_ratio)
            return Reason(Why.USED_BY_OTHERS, {"gpu": str(load.id), "percent": percent}, load.jobs)
    return None


def _used_by_others(draft: Draft, pool: str, kinds: Iterable[str]) -> Iterator[GpuLoad]:
    """GPUs of a pool that others use."""
    for node in draft.view.nodes.values():
        for gpu in node.node.gpus:
            if gpu.is_disturbed and node.node.pool == pool and gpu.type in kinds:
                yield draft.load(GpuId(node.node.name, gpu.index))


def _no_gang(draft: Draft, spec: JobSpec, types: Iterable[str], holders: tuple[JobId, ...]) -> Reason:
    """A job over several nodes: how many GPUs of one type are free, of nodes that have enough for it."""
    have = 0
    for gpu_type in types:
        nodes = [draft.view.node_at(order) for order in draft.free((spec.pool, gpu_type)).nodes_with(1)]
        free = [draft.free_count(node, gpu_type) for node in nodes]
        have = max(have, sum([spec.ranks_of(count) for count in free]) if spec.gpus_per_node else sum(free))
    facts: dict[str, str | int | float] = {"need": spec.gpus, "gpu_type": spec.gpu_type or "any", "have": have}
    if spec.gpus_per_node:
        facts["on_each"] = spec.gpus_per_node
    return Reason(Why.NO_FREE_GANG if have < spec.gpus else Why.NO_ROOM_FOR_GANG, facts, holders)


def _with_enough(draft: Draft, spec: JobSpec, types: Iterable[str]) -> list[tuple[NodeState, str]]:
    """Nodes with as many free GPUs of a type as a job needs."""
    free = [(draft.free((spec.pool, kind)), kind) for kind in types]
    return [(draft.view.node_at(order), kind) for index, kind in free for order in index.nodes_with(spec.gpus)]


def _no_host(draft: Draft, spec: JobSpec, types: Iterable[str], holders: tuple[JobId, ...]) -> Reason | None:
    """What of the hosts is lacking; None where nothing is."""
    nodes = _with_enough(draft, spec, types)
    cores = max(len(draft.cores_free(node)) for node, _ in nodes)
    host_bytes = max(draft.host_memory_free_bytes(node) for node, _ in nodes)
    need = host_needs(spec, spec.gpus)
    if need.cores > cores:
        return Reason(Why.NO_CORES, {"need": need.cores, "have": cores}, holders)
    if need.host_memory_bytes > host_bytes:
        facts = {"need_bytes": need.host_memory_bytes, "have_bytes": host_bytes}
        return Reason(Why.NO_HOST_MEMORY, facts, holders)
    bandwidth = max(draft.host_bandwidth_free(node) for node, _ in nodes)
    if need.host_bandwidth_bytes_per_s > bandwidth:
        facts = {"need_bytes": int(need.host_bandwidth_bytes_per_s), "have_bytes": int(bandwidth)}
        return Reason(Why.NO_HOST_BANDWIDTH, facts, holders)
    return None


def _memory(draft: Draft, spec: JobSpec, types: Iterable[str], holders: tuple[JobId, ...]) -> Reason:
    capacities = [
        (draft.load(GpuId(node.node.name, gpu.index)).capacity_bytes, kind)
        for node, kind in _with_enough(draft, spec, types)
        for gpu in node.node.gpus
        if gpu.type == kind
    ]
    have_bytes, kind = max(capacities)
    memory = draft.beliefs.memory(spec, kind)
    need_bytes = sum(memory) if memory else spec.gpu_memory_bytes or 0
    return Reason(Why.NO_MEMORY, {"need_bytes": need_bytes, "have_bytes": have_bytes}, holders)
