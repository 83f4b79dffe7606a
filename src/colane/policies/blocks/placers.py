"""Where a job may have GPUs of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.state import NodeState
from colane.model.job import JobSpec
from colane.policies.blocks.gangs import over_nodes


def first_fit(draft: Draft, spec: JobSpec, types: Iterable[str] | None = None) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of the first node, in order of registration, that has room; None when there is none.

    The first GPU type that has such a node is taken; `types` are those the job may use in order of preference, if
    not that of their names.
    """
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type) if types is None else types:
        nodes = draft.free((spec.pool, gpu_type)).nodes_with(spec.gpus)
        gpus = None if spec.anti_collocation else _first(draft, spec, gpu_type, nodes)
        if gpus is not None:
            return gpus
    return over_nodes(draft, spec, types) if spec.multi_node else None


def first_by_socket(draft: Draft, spec: JobSpec) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of the first node that has room, those of its first sockets first; None when there is none."""
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type):
        nodes = draft.free((spec.pool, gpu_type)).nodes_with(spec.gpus)
        gpus = None if spec.anti_collocation else _first(draft, spec, gpu_type, nodes, by_socket)
        if gpus is not None:
            return gpus
    return over_nodes(draft, spec) if spec.multi_node else None


def best_fit(draft: Draft, spec: JobSpec) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of the node with the fewest free that has room, there of the fullest sockets; None: there is none."""
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type):
        nodes = draft.free((spec.pool, gpu_type)).nodes_fullest_first(spec.gpus)
        gpus = None if spec.anti_collocation else _first(draft, spec, gpu_type, nodes, fullest_socket_first)
        if gpus is not None:
            return gpus
    return over_nodes(draft, spec) if spec.multi_node else None


Arrange = Callable[[list[GpuLoad]], list[GpuLoad]]
"""Puts the free GPUs of a node in the order in which they are taken."""


def by_socket(loads: list[GpuLoad]) -> list[GpuLoad]:
    """In order of sockets."""
    return sorted(loads, key=lambda load: (load.gpu.socket, load.id))


def fullest_socket_first(loads: list[GpuLoad]) -> list[GpuLoad]:
    """Sockets with the fewest free GPUs first."""
    free = Counter(load.gpu.socket for load in loads)
    return sorted(loads, key=lambda load: (free[load.gpu.socket], load.gpu.socket, load.id))


def _first(
    draft: Draft, spec: JobSpec, gpu_type: str, orders: Iterator[int], arrange: Arrange | None = None
) -> tuple[GpuLoad, ...] | None:
    for order in orders:
        gpus = on_node(draft, spec, gpu_type, draft.view.node_at(order), arrange)
        if gpus is not None:
            return gpus
    return None


def on_node(
    draft: Draft, spec: JobSpec, gpu_type: str, node: NodeState, arrange: Arrange | None = None
) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of a node for a job, lowest index first or as arranged; None when it lacks GPUs, memory, cores."""
    if not draft.has_room(node, spec):
        return None
    gpus = []
    for load in draft.free_gpus(node, gpu_type):
        if draft.fits_alone(load, spec):
            gpus.append(load)
            if arrange is None and len(gpus) == spec.gpus:
                break
    if len(gpus) < spec.gpus:
        return None
    return tuple(gpus if arrange is None else arrange(gpus)[: spec.gpus])
