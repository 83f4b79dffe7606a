"""Free GPUs of several nodes for one job that may span them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.free import FreeIndex
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import NodeState
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
