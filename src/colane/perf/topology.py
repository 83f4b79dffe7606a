"""Distances between the GPUs of a machine, and the communication cost of a job on some of them (paper C, section 4.1).

Everything is worked out once for each topology: most machines of a cluster are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise, permutations
from typing import NamedTuple

from colane.model.hardware import Link, LinkKind, Node, Topology
from colane.model.job import CommPattern, JobSpec

IN_SOCKET = 1.0  # distance of two GPUs of one socket whose links are unknown, as in the authors' machine file
ACROSS_SOCKETS = 20.0
ACROSS_MACHINES = 100.0  # larger than any distance in a machine

LENGTHS = {
    LinkKind.SELF: 0.0,
    LinkKind.PIX: 2.0,
    LinkKind.PXB: 3.0,
    LinkKind.PHB: 4.0,
    LinkKind.NODE: 5.0,
    LinkKind.SYS: ACROSS_SOCKETS,
}
"""Lengths of links other than NVLink, in the order of nearness that `nvidia-smi topo -m` gives them."""

BATCH_WEIGHTS = ((128, 1), (64, 2), (4, 3))
"""Communication weight by samples per GPU, from that many on; below, it is 4 (batch classes of the authors' code)."""
WEIGHT_MAX = 4

ORDERED_EXACTLY_MAX = 6
"""Rank orders of rings and pipelines are searched in full up to so many ranks; beyond, the nearest comes next."""


class Comm(NamedTuple):
    """Job graph in short: which ranks talk to each other, and how much."""

    pattern: CommPattern = CommPattern.ALL  # edges of the graph
    weight: int = WEIGHT_MAX  # weight of each edge, 4 much .. 1 little, 0 not at all


def comm_of(spec: JobSpec) -> Comm:
    """Job graph of a job: as declared, else by its batch size; unknown counts as much."""
    weight = spec.comm_weight
    if weight is None:
        batch = spec.batch_size or 0
        weight = next((w for least, w in BATCH_WEIGHTS if batch >= least), WEIGHT_MAX)
    return Comm(spec.comm_pattern, weight)


class CostRange(NamedTuple):
    """Least and largest cost of a number of GPUs on an empty machine."""

    best: float
    worst: float


@dataclass(frozen=True, eq=False)
class Shape:
    """GPUs of one machine as placement sees them; made by `shape_of` and `flat`, one object for each kind of machine.

    Attributes:
        distances: Shortest path between any two GPUs.
        sockets: Socket of each GPU, counted from 0.
        twins: For each GPU the lowest of those it may be exchanged with without any distance or socket changing.
    """

    distances: tuple[tuple[float, ...], ...]
    sockets: tuple[int, ...]
    twins: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """How many there are."""
        return len(self.sockets)

    @cached_property
    def distance_max(self) -> float:
        """Longest of all shortest paths."""
        return max((d for row in self.distances for d in row), default=0.0)

    @cached_property
    def socket_sizes(self) -> tuple[int, ...]:
        """GPUs on each socket."""
        return tuple(self.sockets.count(socket) for socket in range(max(self.sockets, default=-1) + 1))

    def sockets_of(self, gpus: Sequence[int]) -> int:
        """Sockets of some GPUs, one bit for each."""
        mask = 0
        for gpu in gpus:
            mask |= 1 << self.sockets[gpu]
        return mask


@lru_cache(maxsize=4096)
def shape_of(topology: Topology) -> Shape:
    """Shape of a machine whose links are known."""
    best = max((link.lanes for row in topology.links for link in row), default=0)
    lengths = [[_length(link, best) for link in row] for row in topology.links]
    return _shape(_shortest(lengths), topology.sockets)


@lru_cache(maxsize=4096)
def flat(sockets: tuple[int, ...]) -> Shape:
    """Shape of a machine of which the sockets alone are known."""
    lengths = [[0.0 if a == b else _flat_length(x, y) for b, y in enumerate(sockets)] for a, x in enumerate(sockets)]
    return _shape(lengths, sockets)


NODES_MAX = 1 << 18  # nodes whose shapes are remembered at once

_SHAPES: dict[int, tuple[Node, Shape]] = {}
"""By the identity of a node's description, which is kept with it: it stands for nothing else meanwhile."""


def shape_of_node(node: Node) -> Shape:
    """Shape of a node: by its links, or flat by sockets where they are unknown or do not match its GPUs.

    It is remembered for as long as the description is the same.
    """
    found = _SHAPES.get(id(node))
    if found is not None and found[0] is node:
        return found[1]
    if len(_SHAPES) >= NODES_MAX:
        _SHAPES.clear()
    shape = _described(node)
    _SHAPES[id(node)] = node, shape
    return shape


def _described(node: Node) -> Shape:
    if node.topology is not None and node.topology.gpus == len(node.gpus):
        return shape_of(node.topology)
    return flat(tuple([gpu.socket for gpu in node.gpus]))


def _flat_length(socket: int, other: int) -> float:
    return IN_SOCKET if socket == other else ACROSS_SOCKETS


def _length(link: Link, lanes_max: int) -> float:
    """1 over the widest NVLink of the machine; narrower ones are longer, but shorter than any two links in a row."""
    if link.kind is LinkKind.NVLINK:
        return 2.0 - link.lanes / lanes_max if lanes_max else 1.0
    return LENGTHS[link.kind]


def _shortest(lengths: list[list[float]]) -> list[list[float]]:
    """All shortest paths (Floyd and Warshall)."""
    reach = [row.copy() for row in lengths]
    for via in range(len(reach)):
        for row in reach:
            through = row[via]
            for b, rest in enumerate(reach[via]):
                row[b] = min(row[b], through + rest)
    return reach


def _shape(distances: list[list[float]], sockets: Sequence[int]) -> Shape:
    order = sorted(set(sockets))
    counted = tuple(order.index(socket) for socket in sockets)
    rows = tuple(tuple(row) for row in distances)
    return Shape(rows, counted, tuple(_first_twin(rows, counted, gpu) for gpu in range(len(counted))))


def _first_twin(distances: tuple[tuple[float, ...], ...], sockets: tuple[int, ...], gpu: int) -> int:
    return next((other for other in range(gpu) if _are_twins(distances, sockets, gpu, other)), gpu)


def _are_twins(distances: tuple[tuple[float, ...], ...], sockets: tuple[int, ...], a: int, b: int) -> bool:
    same = (distances[a][x] == distances[b][x] for x in range(len(sockets)) if x not in (a, b))
    return sockets[a] == sockets[b] and all(same)


def distinct_sets(shape: Shape, free: int, count: int) -> Iterator[tuple[int, ...]]:
    """Sets of `count` of the free GPUs, one of each kind: sets that differ by twins alone are alike.

    Args:
        shape: The machine.
        free: Free GPUs, one bit for each.
        count: How many are wanted.
    """
    groups: dict[int, list[int]] = {}
    for gpu in range(shape.gpus):
        if free >> gpu & 1:
            groups.setdefault(shape.twins[gpu], []).append(gpu)
    for chosen in _draws(list(groups.values()), count):
        yield tuple(sorted(chosen))


def _draws(groups: list[list[int]], count: int) -> Iterator[tuple[int, ...]]:
    """Take the first few of each group, `count` in all."""
    if not groups:
        if count == 0:
            yield ()
        return
    first, rest = groups[0], groups[1:]
    left = sum(map(len, rest))
    for taken in range(min(len(first), count), max(0, count - left) - 1, -1):
        for others in _draws(rest, count - taken):
            yield (*first[:taken], *others)


@lru_cache(maxsize=1 << 16)
def best_order(shape: Shape, gpus: tuple[int, ...], pattern: CommPattern) -> tuple[int, ...]:
    """GPUs in the rank order that makes the job graph's edges shortest; ascending where the order is of no matter."""
    if pattern is CommPattern.ALL or len(gpus) <= 2:
        return gpus
    orders = _orders(shape, gpus, pattern)
    return min(orders, key=lambda order: (_path(shape, order, pattern), order))


def _orders(shape: Shape, gpus: tuple[int, ...], pattern: CommPattern) -> Iterator[tuple[int, ...]]:
    """Orders to choose from; a ring may begin anywhere."""
    if len(gpus) > ORDERED_EXACTLY_MAX:
        return (_nearest_next(shape, gpus, start) for start in gpus)
    if pattern is CommPattern.RING:
        return ((gpus[0], *rest) for rest in permutations(gpus[1:]))
    return permutations(gpus)


def _nearest_next(shape: Shape, gpus: tuple[int, ...], start: int) -> tuple[int, ...]:
    order, left = [start], set(gpus) - {start}
    while left:
        row = shape.distances[order[-1]]
        order.append(min(left, key=lambda gpu: (row[gpu], gpu)))
        left.remove(order[-1])
    return tuple(order)


def _path(shape: Shape, order: Sequence[int], pattern: CommPattern) -> float:
    hops = sum(shape.distances[a][b] for a, b in pairwise(order))
    closes = pattern is CommPattern.RING and len(order) > 2
    return hops + (shape.distances[order[-1]][order[0]] if closes else 0.0)


@lru_cache(maxsize=1 << 16)
def cost(shape: Shape, gpus: tuple[int, ...], pattern: CommPattern = CommPattern.ALL) -> float:
    """Cost t of equation 3: sum of the shortest paths over the edges of the job graph, ranks in their best order."""
    if pattern is not CommPattern.ALL:
        return _path(shape, best_order(shape, gpus, pattern), pattern)
    distances = shape.distances
    return sum(distances[a][b] for place, a in enumerate(gpus) for b in gpus[place + 1 :])


@lru_cache(maxsize=1 << 14)
def bounds(shape: Shape, count: int, pattern: CommPattern = CommPattern.ALL) -> CostRange:
    """Least cost of so many GPUs of an empty machine, and what counts as the worst.

    The worst is, as in the authors' code, each rank as far as any two GPUs are; never less than the worst set.
    """
    costs = costs_of(shape, count, pattern)
    return CostRange(min(costs, default=0.0), max([count * shape.distance_max, *costs]))


@lru_cache(maxsize=1 << 14)
def costs_of(shape: Shape, count: int, pattern: CommPattern = CommPattern.ALL) -> frozenset[float]:
    """All costs there are of so many GPUs of a machine."""
    return frozenset([cost(shape, gpus, pattern) for gpus in distinct_sets(shape, (1 << shape.gpus) - 1, count)])


@lru_cache(maxsize=1 << 17)
def excess(shape: Shape, gpus: tuple[int, ...], comm: Comm) -> float:
    """Communication cost beyond the best this machine could give, over its worst, by the job's weight: 0 .. 1.

    GPUs are given in ascending order.
    """
    if len(gpus) < 2 or not comm.weight:
        return 0.0
    best, worst = bounds(shape, len(gpus), comm.pattern)
    beyond = (cost(shape, gpus, comm.pattern) - best) / worst if worst else 0.0
    return beyond * comm.weight / WEIGHT_MAX
