"""Free GPUs of several nodes for one job that may span them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.state import NodeState
from colane.model.job import JobSpec


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
    taken: list[GpuLoad] = []
    for node in _emptiest_first(draft, spec, gpu_type):
        wanted = 1 if spec.anti_collocation else spec.gpus - len(taken)
        taken += _here(draft, spec, gpu_type, node, wanted)
        if len(taken) == spec.gpus:
            return tuple(taken)
    return None


def _emptiest_first(draft: Draft, spec: JobSpec, gpu_type: str) -> Iterator[NodeState]:
    index = draft.free((spec.pool, gpu_type))
    for exact in range(index.most_free, 0, -1):
        for order in index.nodes_with_exactly(exact):
            yield draft.view.node_at(order)


def _here(draft: Draft, spec: JobSpec, gpu_type: str, node: NodeState, wanted: int) -> list[GpuLoad]:
    """As many GPUs of a node as it has cores and host memory for, at most `wanted`."""
    fitting = [load for load in draft.free_gpus(node, gpu_type) if draft.fits_alone(load, spec)]
    ranks = min(wanted, len(fitting))
    while ranks and not draft.has_room(node, spec, ranks):
        ranks -= 1
    return fitting[:ranks]
