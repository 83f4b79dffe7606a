"""Bipartition of a graph (Fiduccia and Mattheyses, A linear-time heuristic for improving network partitions, 1982)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Affinity = Mapping[tuple[int, int], float]
"""Weight of the edge between two vertices, smaller number first; absent is 0."""

GAIN_MIN = 1e-12
"""Less than this is rounding."""


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
