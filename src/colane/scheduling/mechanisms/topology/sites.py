"""Nodes of one kind, grouped by all that decides how well a job lies on them: alike nodes are judged once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import Kind
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import JobId
from colane.model.profile import ProfileKey
from colane.perf.estimates import Estimates
from colane.perf.topology import Comm, Shape, shape_of_node
from colane.perf.utility import NEUTRAL, Measure, Weights, harm_beside
from colane.scheduling.mechanisms.topology.node_fit import Fit, Neighbour, Question


class Occupant(NamedTuple):
    """A kind of job on a node."""

    sockets: int  # where it runs, one bit for each socket
    key: ProfileKey  # its profile


class Site(NamedTuple):
    """A node as placement sees it; equal for nodes that are alike."""

    shape: Shape  # GPUs and distances
    free: int  # free GPUs of the kind, one bit for each
    occupants: tuple[Occupant, ...]  # jobs on it, sorted


class Resident(NamedTuple):
    """One job on a node."""

    job: JobId
    key: ProfileKey
    gpus: tuple[int, ...]


def residents(draft: Draft, node: NodeState) -> list[Resident]:
    """Jobs on a node as it will be, by id."""
    if node.node.gpus and draft.free_count(node, node.node.gpus[0].type) == len(node.node.gpus):
        return []
    return _residents(node, draft.load)


def _residents(node: NodeState, load: Callable[[GpuId], GpuLoad]) -> list[Resident]:
    found: dict[JobId, tuple[ProfileKey, list[int]]] = {}
    for number, gpu in node.ids.items():
        for booking in load(gpu).bookings:
            found.setdefault(booking.job, (booking.key, []))[1].append(number)
    return [Resident(job, key, tuple(gpus)) for job, (key, gpus) in sorted(found.items())]


def question(
    beliefs: Estimates, site: Site, key: ProfileKey, ranks: int, comm: Comm,
    weights: Weights = NEUTRAL, measure: Measure = Measure.EXCESS, shared: float = 0.0,
) -> Question:  # fmt: skip
    """What a placer is asked about so many ranks of a job on nodes that look like this (see `Question`)."""
    near = [
        Neighbour(
            occupant.sockets,
            harm_beside(beliefs, key, occupant.key, measure),
            harm_beside(beliefs, occupant.key, key, measure),
        )
        for occupant in site.occupants
    ]
    relevant = tuple(sorted([one for one in near if one.suffered or one.caused]))
    return Question(site.shape, site.free, relevant, ranks, comm, weights, shared)


def site_of(draft: Draft, node: NodeState, gpus: Iterable[int]) -> Site:
    """A node as it will be once these of its GPUs, given by number, are free, and all jobs on any of them gone."""
    shape, free = shape_of_node(node.node), frozenset(gpus)
    stay = [
        Occupant(shape.sockets_of(one.gpus), one.key) for one in residents(draft, node) if free.isdisjoint(one.gpus)
    ]
    return Site(shape, sum([1 << gpu for gpu in free]), tuple(stay))


def _site(node: NodeState, free: int, load: Callable[[GpuId], GpuLoad]) -> Site:
    shape = shape_of_node(node.node)
    if free.bit_count() == shape.gpus:
        return Site(shape, free, ())
    occupants = (Occupant(shape.sockets_of(one.gpus), one.key) for one in _residents(node, load))
    return Site(shape, free, tuple(sorted(occupants, key=_order)))


def _order(occupant: Occupant) -> tuple[int, str, int, int]:
    key = occupant.key
    return occupant.sockets, key.family, -1 if key.batch_size is None else key.batch_size, key.gpus


class Row(NamedTuple):
    """A site's answer for a class of jobs; the best sorts first."""

    minus_system: float
    minus_job: float
    site: int
    fit: Fit


@dataclass(slots=True)
class Ranking:
    """Answers of all sites there are for a class of jobs."""

    # best first; those of sites that no node is like any more are dropped from time to time
    rows: list[Row] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)  # sites in it
    seen: int = 0  # how far the table's log was followed

    def drop(self, is_living: Callable[[int], object]) -> None:
        """Drop the rows of dead sites."""
        self.rows = [row for row in self.rows if is_living(row.site)]
        self.answered = {row.site for row in self.rows}


SITES_PER_NODE_MAX = 16
SITES_MIN = 1 << 12
RANKINGS_MAX = 1 << 10


class SiteTable:
    """Nodes of one kind that have free GPUs, by site.

    Attributes:
        known: Every site there was lately, in order of appearance.
        nodes: Of each, one bit for each node.
        living: Sites that have any.
        log: Sites in the order in which a first node came to be like them, again and again.
        rankings: Answers, by whatever they depend on besides the site.
    """

    def __init__(self) -> None:
        self.known: list[Site] = []
        self.nodes: list[int] = []
        self.log: list[int] = []
        self.rankings: dict[Hashable, Ranking] = {}
        self._numbers: dict[Site, int] = {}
        self._of_node: dict[int, int] = {}
        self.living = 0

    def number(self, site: Site) -> int:
        """Number of a site, a new one for one not seen before."""
        number = self._numbers.get(site)
        if number is None:
            number = self._numbers[site] = len(self.known)
            self.known.append(site)
            self.nodes.append(0)
        return number

    def enter(self, node: int, site: Site) -> None:
        """A node looks like this now."""
        self.leave(node)
        number = self._of_node[node] = self.number(site)
        if not self.nodes[number]:
            self.living += 1
            self.log.append(number)
        self.nodes[number] |= 1 << node

    def leave(self, node: int) -> None:
        """A node is not here any more."""
        number = self._of_node.pop(node, None)
        if number is not None:
            self.nodes[number] &= ~(1 << node)
            self.living -= not self.nodes[number]

    def ranking(self, asked: Hashable) -> Ranking:
        """Answers given so far."""
        found = self.rankings.get(asked)
        if found is None:
            if len(self.rankings) >= RANKINGS_MAX:
                self.rankings.clear()
            found = self.rankings[asked] = Ranking()
        return found

    def renewed(self) -> SiteTable:
        """This one, or a new one of the living sites alone when most are of the past."""
        if len(self.log) <= max(SITES_MIN, SITES_PER_NODE_MAX * len(self._of_node)):
            return self
        table = SiteTable()
        for node, number in sorted(self._of_node.items()):
            table.enter(node, self.known[number])
        return table


class SiteIndex:
    """All nodes by kind and site, kept true by the core's word of what has changed."""

    def __init__(self) -> None:
        self._tables: dict[Kind, SiteTable] = {}
        self._kinds: dict[int, tuple[Kind, ...]] = {}
        self._touched: set[int] = set()

    def touched(self, node: int) -> None:
        """To be looked at again."""
        self._touched.add(node)

    def removed(self, node: int) -> None:
        """Gone."""
        self._touched.discard(node)
        for kind in self._kinds.pop(node, ()):
            self._tables[kind].leave(node)

    def table(self, view: ClusterView, kind: Kind) -> SiteTable:
        """Nodes of a kind as the state has them."""
        touched, self._touched = self._touched, set()
        for order in sorted(touched):
            self._refresh(view, order)
        table = self._tables[kind] = self._tables.get(kind, SiteTable()).renewed()
        return table

    def _refresh(self, view: ClusterView, order: int) -> None:
        for kind in self._kinds.pop(order, ()):
            self._tables[kind].leave(order)
        node = view.node_at(order)
        kinds = []
        for gpu_type, free in node.free.items():
            if free:
                kinds.append((node.node.pool, gpu_type))
                self._tables.setdefault(kinds[-1], SiteTable()).enter(order, _site(node, free, view.gpu))
        self._kinds[order] = tuple(kinds)


class Sites:
    """Nodes of one kind by site, as a draft will leave them.

    Attributes:
        table: As the state has them.
    """

    def __init__(self, draft: Draft, kind: Kind) -> None:
        self.table = draft.view.derived(SiteIndex).table(draft.view, kind)
        self._draft = draft
        self._kind = kind
        self._changed = 0
        self._of_node: dict[int, int] = {}
        self._nodes: dict[int, int] = {}

    @property
    def living(self) -> int:
        """How many sites have nodes in the state."""
        return self.table.living

    def nodes(self, number: int) -> int:
        """Nodes of a site, one bit for each."""
        return self.table.nodes[number] & ~self._changed | self._nodes.get(number, 0)

    def is_living(self, number: int) -> bool:
        """Whether nodes are like this, as the state has them or as this draft will leave them."""
        return bool(self.table.nodes[number] or self._nodes.get(number))

    def changed(self, node: NodeState) -> None:
        """Something was decided about a node."""
        bit = 1 << node.order
        self._changed |= bit
        old = self._of_node.pop(node.order, None)
        if old is not None:
            self._nodes[old] &= ~bit
        free = sum(1 << load.id.number for load in self._draft.free_gpus(node, self._kind[1]))
        if free and node.node.pool == self._kind[0]:
            number = self._of_node[node.order] = self.table.number(_site(node, free, self._draft.load))
            self.table.log.append(number)
            self._nodes[number] = self._nodes.get(number, 0) | bit
