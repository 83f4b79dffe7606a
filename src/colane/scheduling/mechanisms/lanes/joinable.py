"""GPUs whose jobs may have co-runners, in the order they are tried; kept from one plan to the next.

What a newcomer needs of a GPU can be told from two numbers: what is left beside its lanes, and how large the largest
lane is. With P + E <= left it gets a lane of its own; with P + max(0, E - largest) <= left it can join or grow a lane,
for if any lane can take it, the largest can. GPUs are kept sorted by what is left: on a busy cluster few have any.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

from colane.core.cluster.contents import Kind
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.profile import Memory

REBUILD_PART = 8  # with more than one in so many nodes changed, sorting anew is quicker than taking them out one by one


class JoinableGpu(NamedTuple):
    """A GPU that may be joined; entries compare in the order they are tried."""

    rank: int
    gpu: GpuId
    left_bytes: int
    largest_bytes: int
    carries_gang: bool = False

    def has_room_for_lane(self, memory: Memory) -> bool:
        """Whether a lane of the job's own fits."""
        return sum(memory) <= self.left_bytes

    def has_room_in_lane(self, memory: Memory) -> bool:
        """Whether some lane can take the job, if need be by growing."""
        growth = max(0, memory.ephemeral_bytes - self.largest_bytes)
        return memory.persistent_bytes + growth <= self.left_bytes


def entry_of(load: GpuLoad, sign: int) -> JoinableGpu:
    """The entry of a GPU that may be joined; `sign` is 1 for fewest jobs first, -1 for most."""
    largest = max((b.memory.ephemeral_bytes for b in load.bookings if b.memory is not None), default=0)
    return JoinableGpu(sign * len(load.bookings), load.id, load.left_bytes, largest, load.carries_gang)


class LaneIndex:
    """Entries by pool and GPU type, with GPUs of jobs of several, to be tried with the fewest jobs first."""

    sign: ClassVar[int] = 1

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self._on_node: dict[int, list[tuple[Kind, JoinableGpu]]] = {}
        self._by_left: dict[Kind, list[tuple[int, JoinableGpu]]] = {}

    def touched(self, node: int) -> None:
        """What a node is, or carries, has changed, or it is new."""
        self._changed.add(node)

    def removed(self, node: int) -> None:
        """A node has gone."""
        self._changed.discard(node)
        self._drop(node)

    def entries(self, view: ClusterView, kind: Kind, left_bytes: int = 0) -> list[JoinableGpu]:
        """GPUs of a kind that may be joined and have at least so much left, in no order."""
        if len(self._changed) * REBUILD_PART > len(self._on_node):
            self._rebuild(view)
        else:
            self._update(view)
        self._changed.clear()
        known = self._by_left.get(kind, [])
        return [entry for _, entry in known[bisect_left(known, (left_bytes,)) :]]

    def _update(self, view: ClusterView) -> None:
        for node in self._changed:
            self._drop(node)
            self._on_node[node] = list(self._read(view, node))
            for kind, entry in self._on_node[node]:
                insort(self._by_left.setdefault(kind, []), (entry.left_bytes, entry))

    def _rebuild(self, view: ClusterView) -> None:
        for node in self._changed:
            self._on_node[node] = list(self._read(view, node))
        self._by_left = {}
        for found in self._on_node.values():
            for kind, entry in found:
                self._by_left.setdefault(kind, []).append((entry.left_bytes, entry))
        for entries in self._by_left.values():
            entries.sort()

    def _drop(self, node: int) -> None:
        for kind, entry in self._on_node.pop(node, ()):
            entries = self._by_left[kind]
            del entries[bisect_left(entries, (entry.left_bytes, entry))]

    def _read(self, view: ClusterView, order: int) -> Iterator[tuple[Kind, JoinableGpu]]:
        node = view.node_at(order).node
        for gpu in node.gpus:
            load = view.gpu(GpuId(node.name, gpu.index))
            if load.is_joinable_by_gangs:
                yield (node.pool, gpu.type), entry_of(load, self.sign)


class FullestFirst(LaneIndex):
    """The same, to be tried with the most jobs first."""

    sign: ClassVar[int] = -1


class Candidates:
    """GPUs that may take jobs of one class, in order, while a plan is made.

    A GPU that does not suit the class is left out until something starts on it, and then it suits the class even less
    unless it had been free. So each is looked at once, and once more after each start on it.
    """

    def __init__(self, entries: list[JoinableGpu], suits: Callable[[JoinableGpu], bool]) -> None:
        self._suits = suits
        self._heap = [entry for entry in entries if suits(entry)]
        self._seen = 0
        heapify(self._heap)

    def walk(self, now: dict[GpuId, JoinableGpu], fresh: list[JoinableGpu]) -> Iterator[JoinableGpu]:
        """Candidates as they are; one that is not taken is left out.

        Args:
            now: Entries that are no longer as they were when the plan began.
            fresh: The same in order of change.
        """
        for entry in fresh[self._seen :]:
            if self._suits(entry):
                heappush(self._heap, entry)
        self._seen = len(fresh)
        while self._heap:
            entry = self._heap[0]
            if now.get(entry.gpu, entry) == entry:
                yield entry
            heappop(self._heap)
