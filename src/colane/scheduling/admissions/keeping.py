"""GPUs kept for a job that has waited too long."""

from __future__ import annotations

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import NodeState
from colane.model.job import Job, JobSpec
from colane.model.resources import cpu_only_capacity, host_needs
from colane.scheduling.admissions.empty import EmptyNodes


def keep_room(draft: Draft, job: Job, spec: JobSpec) -> list[GpuLoad] | None:
    """Let nobody else start on GPUs of the node that comes nearest to having room for a job; None: none ever has.

    That is the node with the most free GPUs among those that have enough at all, so free GPUs there become more until
    the job starts. For a job over several nodes, as many of those with the most free as it takes. Its needs are those
    at the smallest size it may have.

    Returns:
        The GPUs kept; none of those on which somebody has just started: they are kept from the next plan on.
    """
    if job.home:
        return _keep(draft, job, spec, list(draft.homes(job)), spec.gpus) or None
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type):
        kept, ranks = list[tuple[NodeState, int]](), 0
        able = draft.view.derived(EmptyNodes).able(draft.view, spec, gpu_type)
        for order in draft.free((spec.pool, gpu_type)).nodes_emptiest_first(able.nodes, spec.gpus):
            here = min(spec.gpus - ranks, able.ranks[order])
            kept.append((draft.view.node_at(order), here))
            ranks += here
            if ranks >= spec.gpus:
                return [gpu for node, count in kept for gpu in _hold(draft, job, spec, node, gpu_type, count)]
    return None


def keep_host(draft: Draft, job: Job) -> None:
    """Let nobody take what a job without GPUs books of the node that comes nearest to having room for it.

    That is the one with the most free cores, then host memory, of those that could ever hold it; where there are
    others with as much, the first. So what is free there becomes more until the job starts.
    """
    need = host_needs(job.effective, 0)
    able = [
        node for node in draft.view.nodes.values()
        if node.node.pool == job.spec.pool and node.node.takes_jobs and need <= cpu_only_capacity(node.node)
    ]  # fmt: skip
    free = [(draft.cpu_only_free(node), node) for node in able]
    ranked = [(min(has.cores, need.cores), has.host_memory_bytes, -node.order) for has, node in free]
    if ranked:
        draft.hold_host(job, free[ranked.index(max(ranked))][1])


def _hold(draft: Draft, job: Job, spec: JobSpec, node: NodeState, gpu_type: str, count: int) -> list[GpuLoad]:
    """Keep free GPUs of a node, of the others those with the fewest jobs; none on which somebody has just started."""
    ids, held = node.ids, draft.held
    here = [ids[gpu.index] for gpu in node.node.gpus if gpu.type == gpu_type and gpu.healthy and node.node.takes_jobs]
    return _keep(draft, job, spec, [draft.load(gpu) for gpu in here if gpu not in held], count)


def _keep(draft: Draft, job: Job, spec: JobSpec, loads: list[GpuLoad], count: int) -> list[GpuLoad]:
    nearest = sorted(loads, key=lambda load: (not load.is_free, len(load.bookings), load.id))[:count]
    chosen = [load for load in nearest if load is draft.view.gpu(load.id)]
    if chosen:
        draft.hold(job, chosen, spec)
    return chosen
