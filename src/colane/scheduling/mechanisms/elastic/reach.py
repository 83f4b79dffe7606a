"""Which GPUs an elastic job goes on with when it is resized: of its node, or of any where it may span several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.model.hardware import is_instance_type
from colane.model.job import Job, JobSpec
from colane.model.resources import Resources, host_needs
from colane.scheduling.engine.contracts import SchedulingContext

EVERYWHERE: Final = ""  # stands for the nodes of the pool, of a job that may span them

NOTHING_OWN: Final = Resources()


def reach_of(job: Job) -> str:
    """The node that a running job can be resized on; `EVERYWHERE` where it may span nodes."""
    return EVERYWHERE if job.spec.multi_node or job.placement is None else job.placement.node


def usable(context: SchedulingContext, reach: str, gpu_type: str) -> int:
    """Free GPUs of a type in reach."""
    draft = context.draft
    if is_instance_type(gpu_type):
        return 0  # CUDA shows a process one instance
    if reach != EVERYWHERE:
        return draft.free_count(draft.view.nodes[reach], gpu_type)
    return sum([mask.bit_count() for mask in draft.free((context.pool, gpu_type)).masks[1:]])


def kept(context: SchedulingContext, job: Job, gpus: int) -> tuple[GpuLoad, ...]:
    """The GPUs that a job keeps which gives some up: of the nodes, then the sockets, with most of its ranks."""
    held = [context.draft.load(gpu) for gpu in job.gpus_held]
    nodes, sockets = dict[str, int](), dict[tuple[str, int], int]()
    for load in held:
        node, socket = load.id.node, (load.id.node, load.gpu.socket)
        nodes[node], sockets[socket] = nodes.get(node, 0) + 1, sockets.get(socket, 0) + 1

    def rank(load: GpuLoad) -> tuple[object, ...]:
        node, socket = load.id.node, load.gpu.socket
        return -nodes[node], node, -sockets[node, socket], socket, load.id

    return in_rank_order(sorted(held, key=rank)[:gpus])


def grown(context: SchedulingContext, job: Job, gpus: int) -> tuple[GpuLoad, ...] | None:
    """With more GPUs, free ones among them; None where GPUs, cores or host memory are too few."""
    if job.placement is None or context.draft.load(job.gpus_held[0]).gpu.is_mig_instance:
        return None
    return _over_nodes(context, job, gpus) if job.spec.multi_node else _on_its_node(context, job, gpus)


def on_one_node(context: SchedulingContext, job: Job) -> tuple[GpuLoad, ...] | None:
    """As many of its own and of free GPUs of one node, of its type; None where no node has these for all its ranks.

    Of nodes those with most of its ranks go first, then the fullest.
    """
    draft, gpus = context.draft, job.gpu_count
    held = [draft.load(gpu) for gpu in job.gpus_held]
    gpu_type = held[0].gpu.type
    for node in _nodes_for_all(context, job, gpu_type):
        there = [load for load in held if load.id.node == node.node.name]
        free = _fitting(draft, job.effective, node, gpu_type)
        need = host_needs(job.effective, gpus) - host_needs(job.effective, len(there))
        may_use = bool(there) or draft.may_use(node, job.effective)
        if may_use and len(there) + len(free) >= gpus and need <= draft.host_free(node):
            return in_rank_order([*there, *free[: gpus - len(there)]])
    return None


def _nodes_for_all(context: SchedulingContext, job: Job, gpu_type: str) -> Iterator[NodeState]:
    draft, view = context.draft, context.draft.view
    ranks = Counter([gpu.node for gpu in job.gpus_held])
    for name, own in sorted(ranks.items(), key=_most_ranks_first):
        node = view.nodes[name]
        if node.node.takes_jobs and own + draft.free_count(node, gpu_type) >= job.gpu_count:
            yield node
    free = draft.free((context.pool, gpu_type))
    for count in range(job.gpu_count, free.most_free + 1):
        for order in free.nodes_with_exactly(count):
            node = view.node_at(order)
            if node.node.name not in ranks:
                yield node


def _most_ranks_first(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


def _on_its_node(context: SchedulingContext, job: Job, gpus: int) -> tuple[GpuLoad, ...] | None:
    """Its GPUs and free ones of its node, near ones first."""
    draft, spec = context.draft, job.effective
    held = [draft.load(gpu) for gpu in job.gpus_held]
    node, more = draft.view.nodes[held[0].id.node], gpus - len(held)
    free = _fitting(draft, spec, node, held[0].gpu.type)
    if len(free) < more or not host_needs(spec, gpus) - host_needs(spec, len(held)) <= draft.host_free(node):
        return None
    sockets = {load.gpu.socket for load in held}
    near = sorted(free, key=lambda load: (load.gpu.socket not in sockets, load.gpu.socket, load.id))[:more]
    return in_rank_order([*held, *near])


def _over_nodes(context: SchedulingContext, job: Job, gpus: int) -> tuple[GpuLoad, ...] | None:
    """Its own and free ones of its type, of as few nodes as that takes; it may leave nodes for that."""
    draft = context.draft
    found: dict[str, list[GpuLoad]] = {}
    for gpu in job.gpus_held:
        found.setdefault(gpu.node, []).append(draft.load(gpu))
    own = {node: host_needs(job.effective, len(loads)) for node, loads in found.items()}
    gpu_type = draft.load(job.gpus_held[0]).gpu.type
    for order in draft.free((context.pool, gpu_type)).nodes_with(1):
        node = draft.view.node_at(order)
        found.setdefault(node.node.name, []).extend(_fitting(draft, job.effective, node, gpu_type))
    return on_fewest_nodes(draft, job.effective.at(gpus), found, own)


def _fitting(draft: Draft, spec: JobSpec, node: NodeState, gpu_type: str) -> list[GpuLoad]:
    return [load for load in draft.free_gpus(node, gpu_type) if draft.fits_alone(load, spec)]


def on_fewest_nodes(
    draft: Draft, spec: JobSpec, found: Mapping[str, list[GpuLoad]], own: Mapping[str, Resources]
) -> tuple[GpuLoad, ...] | None:
    """As many of these GPUs as a job asks for, of the nodes that have most; None where they are too few.

    Args:
        draft: Decisions so far.
        spec: At the size it is to have.
        found: GPUs by node, those it would rather have first.
        own: What it books of nodes besides GPUs already.
    """
    chosen: list[GpuLoad] = []
    for name in sorted(found, key=lambda name: (-len(found[name]), name not in own, name)):
        left = spec.gpus - len(chosen)
        ranks = _ranks(draft, spec, name, min(left, len(found[name])), own.get(name))
        chosen += found[name][:ranks]
        if len(chosen) == spec.gpus:
            return in_rank_order(chosen)
    return None


def _ranks(draft: Draft, spec: JobSpec, name: str, ranks: int, own: Resources | None) -> int:
    """How many ranks, so many at most, a node has cores and host memory for besides what the job has there."""
    may_use = own is not None or draft.may_use(draft.view.nodes[name], spec)
    ranks = spec.ranks_of(ranks) if may_use else 0
    free = draft.host_free(draft.view.nodes[name])
    while ranks and not host_needs(spec, ranks) - (own or NOTHING_OWN) <= free:
        ranks = spec.ranks_of(ranks - 1)
    return ranks


def in_rank_order(loads: Iterable[GpuLoad]) -> tuple[GpuLoad, ...]:
    """Those of a node follow one another."""
    return tuple(sorted(loads, key=lambda load: load.id))
