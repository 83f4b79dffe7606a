"""What nodes could hold if they were empty, as far as it was asked for; kept from one plan to the next."""

from __future__ import annotations

from typing import NamedTuple

from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import JobSpec
from colane.model.resources import ranks_held

KINDS_MAX = 256
"""Kinds of needs that are remembered at once."""


class Able(NamedTuple):
    """Nodes that are large enough.

    Attributes:
        nodes: One bit for each order number.
        ranks: How many ranks each of them could hold, by order number.
    """

    nodes: int
    ranks: dict[int, int]


class EmptyNodes:
    """See the module."""

    def __init__(self) -> None:
        self._known: dict[int, Node] = {}
        self._touched: set[int] = set()
        self._able: dict[tuple[object, ...], Able] = {}

    def touched(self, node: int) -> None:
        """See `Derived`."""
        self._touched.add(node)

    def removed(self, node: int) -> None:
        """See `Derived`."""
        self._touched.discard(node)
        self._known.pop(node, None)
        self._able.clear()

    def able(self, view: ClusterView, spec: JobSpec, gpu_type: str) -> Able:
        """How many ranks of a job each node of its pool could hold; those too small for it are left out."""
        self._look(view)
        key = (
            spec.pool, gpu_type, spec.gpus, spec.gpus_max, spec.multi_node, spec.anti_collocation, spec.cores,
            spec.host_memory_bytes, spec.host_bandwidth_bytes_per_s, spec.gpu_memory_bytes,
        )  # fmt: skip
        found = self._able.get(key)
        if found is None:
            if len(self._able) >= KINDS_MAX:
                self._able.clear()
            found = self._able[key] = _able(view, spec, gpu_type)
        return found

    def _look(self, view: ClusterView) -> None:
        """Forget everything once a node is not what it was; what it carries does not matter."""
        for order in self._touched:
            node = view.node_at(order).node
            if self._known.get(order) is not node:
                self._known[order] = node
                self._able.clear()
        self._touched.clear()


def _able(view: ClusterView, spec: JobSpec, gpu_type: str) -> Able:
    least = 1 if spec.multi_node else spec.gpus
    nodes, ranks = 0, dict[int, int]()
    for node in view.nodes.values():
        if node.node.pool == spec.pool:
            held = ranks_held(node.node, spec, gpu_type, usable_only=True)
            if held >= least:
                nodes |= 1 << node.order
                ranks[node.order] = held
    return Able(nodes, ranks)
