"""Nodes by the cores they have free for jobs without GPUs; kept from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterator

from colane.core.cluster.draft import Overlay, cpu_only_free
from colane.core.cluster.free import FreeIndex, bits


class FreeCores:
    """An index of nodes by free cores."""

    def __init__(self) -> None:
        self._pools: dict[str, FreeIndex] = {}
        self._pool_of: dict[int, str] = {}
        self._touched: set[int] = set()

    def touched(self, node: int) -> None:
        self._touched.add(node)

    def removed(self, node: int) -> None:
        self._touched.discard(node)
        pool = self._pool_of.pop(node, None)
        if pool is not None:
            self._pools[pool].set(node, 0)

    def in_draft(self, draft: Overlay, pool: str) -> DraftCores:
        """Those of a pool, as they will be."""
        view, touched = draft.view, self._touched
        self._touched = set()
        for order in touched:
            node = view.node_at(order)
            if self._pool_of.get(order, node.node.pool) != node.node.pool:
                self.removed(order)
            self._pool_of[order] = node.node.pool
            index = self._pools.setdefault(node.node.pool, FreeIndex())
            index.set(order, _count(cpu_only_free(node).cores))
        found = DraftCores(self._pools.setdefault(pool, FreeIndex()).copy())
        for node in draft.hosts_touched():
            if node.node.pool == pool:
                found.set(node.order, draft.cpu_only_free(node).cores)
        return found


class DraftCores:
    """Nodes of one pool, by order, as a draft will leave them."""

    def __init__(self, index: FreeIndex) -> None:
        self._index = index

    def set(self, node: int, cores: int) -> None:
        """A node will have so many cores free."""
        self._index.set(node, _count(cores))

    def fullest_first(self, cores: int, among: int) -> Iterator[int]:
        """Of the nodes with these bits those with so many free, from the fewest free; of as many the first."""
        masks = self._index.masks
        least = _count(cores)
        for count in range(least, len(masks)):
            more = masks[count + 1] if count + 1 < len(masks) else 0
            yield from bits(masks[count] & ~more & among)

    def is_any(self, cores: int, among: int) -> bool:
        """Whether one of these nodes has so many free."""
        masks, least = self._index.masks, _count(cores)
        return least < len(masks) and masks[least] & among != 0


def _count(cores: int) -> int:
    """What stands for so many cores in a `FreeIndex`, which leaves out nodes that have none: one more."""
    return max(0, cores) + 1
