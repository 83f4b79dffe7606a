"""Dual recursive bipartitioning: a job graph laid onto the free GPUs half by half (paper C, algorithms 2 and 3).

The corrections to the printed algorithms are in `docs/papers/topology.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from colane.model.job import CommPattern
from colane.perf.topology import Comm, bounds
from colane.perf.utility import system_utility
from colane.scheduling.mechanisms.topology.node_fit import Fit, Question, interference, judge

Part = tuple[int, ...]  # GPUs


@lru_cache(maxsize=1 << 17)
def drb(question: Question) -> tuple[Fit, ...]:
    """One set for a job on a node; empty when there is no room."""
    free = tuple(gpu for gpu in range(question.shape.gpus) if question.free >> gpu & 1)
    if question.ranks > len(free):
        return ()
    mapping = _Mapping(question)
    mapping.lay(tuple(range(question.ranks)), free)
    fit = judge(question, tuple(sorted(mapping.parts[task][0] for task in range(question.ranks))))
    return (fit,)


def edges(comm: Comm, tasks: int) -> dict[tuple[int, int], int]:
    """Job graph: weight of each edge, smaller task first."""
    if comm.pattern is CommPattern.ALL:
        pairs = [(a, b) for a in range(tasks) for b in range(a + 1, tasks)]
    else:
        pairs = [(a, a + 1) for a in range(tasks - 1)]
    if comm.pattern is CommPattern.RING and tasks > 2:
        pairs.append((0, tasks - 1))
    return dict.fromkeys(pairs, comm.weight)


class _Mapping:
    """Where each task may still lie: a part that shrinks to one GPU.

    Attributes:
        parts: By task. The costs C of the printed algorithm follow from it.
    """

    def __init__(self, question: Question) -> None:
        self.parts: dict[int, Part] = {}
        self._question = question
        self._left = (question.free.bit_count() - question.ranks) / question.shape.gpus
        self._edges = edges(question.comm, question.ranks)
        self._worst = bounds(question.shape, question.ranks, question.comm.pattern).worst or 1.0
        distances = question.shape.distances
        self._affinity = {
            (a, b): 1.0 / distances[a][b] for b in range(len(distances)) for a in range(b) if distances[a][b]
        }

    def lay(self, tasks: tuple[int, ...], part: Part) -> None:
        """Algorithm 2: split the part, then the tasks over its halves, until every half is one GPU."""
        self.parts |= dict.fromkeys(tasks, part)
        if not tasks or len(part) == 1:
            return
        halves = self._halve(part)
        for half, share in zip(halves, self._divide(tasks, halves), strict=True):
            self.lay(share, half)

    def _halve(self, part: Part) -> tuple[Part, Part]:
        """Break the hierarchy at its highest level first: between sockets while there are several, else within one."""
        by_socket: dict[int, list[int]] = {}
        for gpu in part:
            by_socket.setdefault(self._question.shape.sockets[gpu], []).append(gpu)
        if len(by_socket) == 1:
            return bipartition(part, self._affinity)
        first, second = bipartition(sorted(by_socket), self._between_sockets(by_socket))
        return _members(by_socket, first), _members(by_socket, second)

    def _between_sockets(self, by_socket: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], float]:
        pairs = [(a, b) for b in by_socket for a in by_socket if a < b]
        return {
            (a, b): sum(self._affinity.get((min(x, y), max(x, y)), 0.0) for x in by_socket[a] for y in by_socket[b])
            for a, b in pairs
        }

    def _divide(self, tasks: Sequence[int], halves: tuple[Part, Part]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Algorithm 3: each task to the half with room and the higher utility; ties to the tighter, the first."""
        sides: tuple[list[int], list[int]] = ([], [])
        for task in self._heaviest_first(tasks):
            with_room = [side for side in (0, 1) if len(sides[side]) < len(halves[side])]
            utility = {side: self._utility(task, side, sides, halves) for side in with_room}
            chosen = max(with_room, key=lambda side: (utility[side], -len(halves[side]), -side))
            sides[chosen].append(task)
        return tuple(sorted(sides[0])), tuple(sorted(sides[1]))

    def _heaviest_first(self, tasks: Sequence[int]) -> list[int]:
        said = {task: sum(w for edge, w in self._edges.items() if task in edge) for task in tasks}
        return sorted(tasks, key=lambda task: (-said[task], task))

    def _utility(self, task: int, side: int, sides: tuple[list[int], list[int]], halves: tuple[Part, Part]) -> float:
        """Of one task in a half: ways to its partners, and neighbours. What the machine has left is the same."""
        question, half = self._question, halves[side]
        near = min(interference(question, 1 << question.shape.sockets[gpu]) for gpu in half)
        cost = self._cost(task, half, self._outside(halves) | self._expected(task, side, sides, halves))
        return system_utility(cost / self._worst, sum(near) / 2, self._left, question.weights)

    def _outside(self, halves: tuple[Part, Part]) -> dict[int, Part]:
        """Tasks that lie in other parts: the costs C of the printed algorithm."""
        here = {*halves[0], *halves[1]}
        return {other: part for other, part in self.parts.items() if not here.issuperset(part)}

    def _expected(
        self, task: int, side: int, sides: tuple[list[int], list[int]], halves: tuple[Part, Part]
    ) -> dict[int, Part]:
        """Tasks of these halves: those laid where they lie; of the others as many here as can come along."""
        laid = dict.fromkeys(sides[0], halves[0]) | dict.fromkeys(sides[1], halves[1])
        here = {*halves[0], *halves[1]}
        room = len(halves[side]) - len(sides[side]) - 1
        for other, part in self.parts.items():
            if other != task and other not in laid and here.issuperset(part):
                laid[other] = halves[side] if room > 0 else halves[1 - side]
                room -= 1
        return laid

    def _cost(self, task: int, half: Part, partners: Mapping[int, Part]) -> float:
        """Shortest ways from the half to where the task's partners lie."""
        distances, total = self._question.shape.distances, 0.0
        for other, part in partners.items():
            if (min(task, other), max(task, other)) in self._edges:
                total += min((distances[a][b] for a in half for b in part if a != b), default=0.0)
        return total


def _members(by_socket: Mapping[int, Sequence[int]], sockets: Sequence[int]) -> Part:
    return tuple(sorted(gpu for socket in sockets for gpu in by_socket[socket]))


Affinity = Mapping[tuple[int, int], float]  # weight of the edge between two vertices, smaller number first; absent is 0

GAIN_MIN = 1e-12  # less than this is rounding


def bipartition(vertices: Sequence[int], affinity: Affinity) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Halve a graph so that little affinity is cut; the halves differ by one vertex at most.

    Starts from the first and the second half of `vertices`, so their order should be a good guess. Each pass moves
    every vertex once, always the one that gains most and keeps the balance, and keeps the best prefix of the moves;
    passes end when one gains nothing. Ties go to the lowest number.

    Args:
        vertices: At least two.
        affinity: Edges.
    """
    half = (len(vertices) + 1) // 2
    side = {vertex: int(place >= half) for place, vertex in enumerate(vertices)}
    while _improve(side, affinity):
        pass
    return tuple(v for v in vertices if not side[v]), tuple(v for v in vertices if side[v])


def cut(side: Mapping[int, int], affinity: Affinity) -> float:
    """Affinity between the two sides."""
    return sum(weight for (a, b), weight in affinity.items() if a in side and b in side and side[a] != side[b])


def _improve(side: dict[int, int], affinity: Affinity) -> bool:
    """One pass; whether it gained anything."""
    trial, locked = dict(side), set[int]()
    gains = {vertex: _gain(vertex, trial, affinity) for vertex in trial}
    total, best, best_total = 0.0, dict(side), 0.0
    while len(locked) < len(trial):
        movable = [v for v in trial if v not in locked and _may_leave(v, trial)]
        if not movable:
            break
        vertex = max(movable, key=lambda v: (gains[v], -v))
        total += gains[vertex]
        _move(vertex, trial, gains, affinity)
        locked.add(vertex)
        if total > best_total + GAIN_MIN and _is_balanced(trial):
            best, best_total = dict(trial), total
    side.update(best)
    return best_total > 0


def _move(vertex: int, side: dict[int, int], gains: dict[int, float], affinity: Affinity) -> None:
    """Change sides; its own gain turns, and each neighbour's changes by twice the edge."""
    side[vertex] ^= 1
    gains[vertex] = -gains[vertex]
    for other in gains:
        if other != vertex:
            weight = affinity.get((min(vertex, other), max(vertex, other)), 0.0)
            gains[other] += 2 * weight if side[other] != side[vertex] else -2 * weight


def _gain(vertex: int, side: Mapping[int, int], affinity: Affinity) -> float:
    """Affinity to the other side less affinity to its own."""
    gain = 0.0
    for other, where in side.items():
        if other != vertex:
            weight = affinity.get((min(vertex, other), max(vertex, other)), 0.0)
            gain += weight if where != side[vertex] else -weight
    return gain


def _may_leave(vertex: int, side: Mapping[int, int]) -> bool:
    """Whether the sides then differ by two at most: one move more than balance, so that two can be swapped."""
    ones = sum(side.values()) + (1 if side[vertex] == 0 else -1)
    return abs(len(side) - 2 * ones) <= 2


def _is_balanced(side: Mapping[int, int]) -> bool:
    return abs(len(side) - 2 * sum(side.values())) <= 1
