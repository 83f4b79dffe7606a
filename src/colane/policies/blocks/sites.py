"""Nodes of one kind, grouped by all that decides how well a job lies on them: alike nodes are judged once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from colane.core.draft import Draft
from colane.core.state import Kind, NodeState
from colane.model.hardware import GpuId, Node
from colane.model.job import JobId
from colane.model.profile import ProfileKey
from colane.perf.topology import Shape, shape_of_node


class Occupant(NamedTuple):
    """A kind of job on a node.

    Attributes:
        sockets: Where it runs, one bit for each socket.
        key: Its profile.
    """

    sockets: int
    key: ProfileKey


class Site(NamedTuple):
    """A node as placement sees it; equal for nodes that are alike.

    Attributes:
        shape: GPUs and distances.
        free: Free GPUs of the kind, one bit for each.
        occupants: Jobs on it, sorted.
    """

    shape: Shape
    free: int
    occupants: tuple[Occupant, ...]


class Resident(NamedTuple):
    """One job on a node."""

    job: JobId
    key: ProfileKey
    gpus: tuple[int, ...]


class Shapes:
    """Shapes of nodes, remembered for as long as a node's description stays the same."""

    NODES_MAX = 1 << 18

    def __init__(self) -> None:
        self._known: dict[int, tuple[Node, Shape]] = {}

    def of(self, node: Node) -> Shape:
        """Shape of a node."""
        found = self._known.get(id(node))
        if found is not None and found[0] is node:
            return found[1]
        if len(self._known) >= self.NODES_MAX:
            self._known.clear()
        shape = shape_of_node(node)
        self._known[id(node)] = node, shape
        return shape


SHAPES = Shapes()


def residents(draft: Draft, node: NodeState) -> list[Resident]:
    """Jobs on a node as it will be, by id."""
    found: dict[JobId, tuple[ProfileKey, list[int]]] = {}
    for gpu in node.node.gpus:
        for booking in draft.load(GpuId(node.node.name, gpu.index)).bookings:
            found.setdefault(booking.job, (booking.key, []))[1].append(gpu.index)
    return [Resident(job, key, tuple(gpus)) for job, (key, gpus) in sorted(found.items())]


def site_of(draft: Draft, node: NodeState, free: int) -> Site:
    """A node as it will be."""
    shape = SHAPES.of(node.node)
    if free.bit_count() == shape.gpus:
        return Site(shape, free, ())
    occupants = (Occupant(shape.sockets_of(one.gpus), one.key) for one in residents(draft, node))
    return Site(shape, free, tuple(sorted(occupants, key=_order)))


def _order(occupant: Occupant) -> tuple[int, str, int, int]:
    key = occupant.key
    return occupant.sockets, key.family, -1 if key.batch_size is None else key.batch_size, key.gpus


class Sites:
    """Nodes of one kind that have free GPUs, by site; follows the draft.

    Attributes:
        known: Every site there was so far, in order of appearance.
    """

    def __init__(self, draft: Draft, kind: Kind) -> None:
        self._draft = draft
        self._kind = kind
        self._numbers: dict[Site, int] = {}
        self._of_node: dict[int, int] = {}
        self._nodes: list[dict[int, None]] = []
        self.known: list[Site] = []
        for order in draft.free(kind).nodes_with(1):
            self._enter(order)

    def nodes(self, number: int) -> Iterator[NodeState]:
        """Nodes of a site, lowest order number first."""
        return (self._draft.view.node_at(order) for order in sorted(self._nodes[number]))

    def is_empty(self, number: int) -> bool:
        """Whether no node is like this any more."""
        return not self._nodes[number]

    def changed(self, node: NodeState) -> None:
        """Something was decided about a node."""
        number = self._of_node.pop(node.order, None)
        if number is not None:
            del self._nodes[number][node.order]
        self._enter(node.order)

    def _enter(self, order: int) -> None:
        node = self._draft.view.node_at(order)
        free = sum(1 << load.id.number for load in self._draft.free_gpus(node, self._kind[1]))
        if not free:
            return
        site = site_of(self._draft, node, free)
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self.known)
            self.known.append(site)
            self._nodes.append({})
        self._nodes[number][order] = None
        self._of_node[order] = number
