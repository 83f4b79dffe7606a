"""What indexes that policies keep from one plan to the next are made of: counts of nodes, and jobs of some kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import Job, JobId


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


NONE_CAME: Final[set[JobId]] = set()


class JobsOfKind(NodesMatterNot, ABC):
    """The jobs of which an index says that they belong to its kind, by what each is now."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    @abstractmethod
    def belongs(self, job: Job) -> bool:
        """Whether a job is of this kind: told by the job alone."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and self.belongs(old):
            self._pools[old.spec.pool].discard(old.id)
        if new is not None and self.belongs(new):
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, NONE_CAME)
