"""Free GPUs for one job: of one node, or of several where it may span them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.free import FreeIndex
from colane.core.cluster.load import GpuLoad
from colane.model.job import JobSpec


class NodeShare(NamedTuple):
    """What a job over several nodes has of one of them.

    Attributes:
        fitting: Free GPUs of the node on which a rank may run.
        ranks: How many of these it takes.
    """

    node: NodeState
    fitting: tuple[GpuLoad, ...]
    ranks: int


def over_nodes(draft: Draft, spec: JobSpec, types: Iterable[str]) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of one type on as few nodes as possible, those with the most free first; None when there are too few.

    Ranks that must not share a node get one node each.
    """
    for gpu_type in types:
        gpus = _of_type(draft, spec, gpu_type)
        if gpus is not None:
            return gpus
    return None


def _of_type(draft: Draft, spec: JobSpec, gpu_type: str) -> tuple[GpuLoad, ...] | None:
    found = shares_of(draft, spec, gpu_type)
    return None if found is None else tuple([load for share in found for load in share.fitting[: share.ranks]])


def shares_of(draft: Draft, spec: JobSpec, gpu_type: str) -> list[NodeShare] | None:
    """Nodes with the most free GPUs of a type first, as few as it takes; None when there are too few.

    Of each as many as it has cores and host memory for; one alone where ranks must not share a node.
    """
    found: list[NodeShare] = []
    left, index = spec.gpus, draft.free((spec.pool, gpu_type))
    for node in emptiest_first(draft, index):
        fitting = tuple(draft.free_gpus(node, gpu_type))
        if not draft.all_fit_alone(fitting, spec):
            fitting = tuple([load for load in fitting if draft.fits_alone(load, spec)])
        ranks = min(1 if spec.anti_collocation else left, len(fitting))
        while ranks and not draft.has_room(node, spec, ranks):
            ranks -= 1
        if ranks:
            found.append(NodeShare(node, fitting, ranks))
            left -= ranks
        if not left:
            return found
    return None


def emptiest_first(draft: Draft, index: FreeIndex) -> Iterator[NodeState]:
    """Nodes with free GPUs of a kind, those with the most first."""
    for free in range(index.most_free, 0, -1):
        for order in index.nodes_with_exactly(free):
            yield draft.view.node_at(order)


# -- on one node


Arrange = Callable[[list[GpuLoad]], list[GpuLoad]]
"""Puts the free GPUs of a node in the order in which they are taken."""


def by_socket(loads: list[GpuLoad]) -> list[GpuLoad]:
    """In order of sockets, those that others use last."""
    return sorted(loads, key=lambda load: (load.gpu.is_disturbed, load.gpu.socket, load.id))


def fullest_socket_first(loads: list[GpuLoad]) -> list[GpuLoad]:
    """Sockets with the fewest free GPUs first."""
    free = Counter(load.gpu.socket for load in loads)
    return sorted(loads, key=lambda load: (load.gpu.is_disturbed, free[load.gpu.socket], load.gpu.socket, load.id))


def on_node(
    draft: Draft, spec: JobSpec, gpu_type: str, node: NodeState, arrange: Arrange | None = None
) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of a node for a job, lowest index first or as arranged; None when it lacks GPUs, memory, cores."""
    if not draft.has_room(node, spec):
        return None
    gpus: list[GpuLoad] = []
    memory = draft.beliefs.terms(spec, gpu_type).memory
    need_bytes = 0 if memory is None else sum(memory)
    for load in draft.free_gpus(node, gpu_type):
        if need_bytes <= load.capacity_bytes:
            gpus.append(load)
            if arrange is None and len(gpus) == spec.gpus:
                break
    if len(gpus) < spec.gpus:
        return None
    return tuple(gpus if arrange is None else arrange(gpus)[: spec.gpus])


def first_fit(draft: Draft, spec: JobSpec) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of the first node that has room, or of several where the job may span them; None: there are none."""
    types = draft.view.gpu_types_for(spec)
    if not spec.anti_collocation:
        for kind in types:
            for order in draft.free((spec.pool, kind)).nodes_with(spec.gpus):
                gpus = on_node(draft, spec, kind, draft.view.node_at(order))
                if gpus is not None:
                    return gpus
    return over_nodes(draft, spec, types) if spec.multi_node else None
