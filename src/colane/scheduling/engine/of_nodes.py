"""What is counted of nodes as they are described, whatever runs there; kept from one plan to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod

from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node


class OfNodes(ABC):
    """An index that counts something of each node; subclasses say what in `count`."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._touched: set[int] = set()

    def touched(self, node: int) -> None:
        self._touched.add(node)

    def removed(self, node: int) -> None:
        self._touched.discard(node)
        known = self._nodes.pop(node, None)
        if known is not None:
            self.count(known, -1)

    def look(self, view: ClusterView) -> None:
        """Count the nodes that are not what they were."""
        for order in self._touched:
            node, known = view.node_at(order).node, self._nodes.get(order)
            if node is not known:
                if known is not None:
                    self.count(known, -1)
                self.count(node, 1)
                self._nodes[order] = node
        self._touched.clear()

    @abstractmethod
    def count(self, node: Node, change: int) -> None:
        """A node has come (change 1) or gone (-1)."""
