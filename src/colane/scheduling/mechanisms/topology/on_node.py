"""Free GPUs of one node for one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import NodeState
from colane.model.job import JobSpec
from colane.scheduling.mechanisms.topology.over_nodes import over_nodes

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
    types = draft.view.gpu_types(spec.pool, spec.gpu_type)
    if not spec.anti_collocation:
        for kind in types:
            for order in draft.free((spec.pool, kind)).nodes_with(spec.gpus):
                gpus = on_node(draft, spec, kind, draft.view.node_at(order))
                if gpus is not None:
                    return gpus
    return over_nodes(draft, spec, types) if spec.multi_node else None
