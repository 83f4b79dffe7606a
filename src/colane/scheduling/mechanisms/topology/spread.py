"""A job over several nodes: as few as possible, on each the GPUs that lie best (paper C, sections 4.1 and 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.model.job import CommPattern, JobSpec
from colane.perf.topology import ACROSS_MACHINES, WEIGHT_MAX, Comm, Shape, bounds, cost
from colane.scheduling.mechanisms.topology.free import shares_of
from colane.scheduling.mechanisms.topology.node_fit import Fit, Question


class Part(NamedTuple):
    """Ranks of a job on one node.

    Attributes:
        gpus: In rank order.
    """

    node: NodeState
    gpus: tuple[int, ...]


Ask = Callable[[NodeState, int, int], tuple[Question, tuple[Fit, ...]]]
"""Where on a node so many ranks lie best, among GPUs given one bit for each."""


def parts_of(draft: Draft, spec: JobSpec, gpu_type: str, ask: Ask) -> list[tuple[Part, Question]] | None:
    """Parts on nodes with the most free GPUs first; None when there are too few. A whole group a node where asked."""
    shares = shares_of(draft, spec, gpu_type)
    if shares is None:
        return None
    found: list[tuple[Part, Question]] = []
    for node, fitting, ranks in shares:
        question, fits = ask(node, sum([1 << load.id.number for load in fitting]), ranks)
        found.append((Part(node, fits[0].gpus), question))
    return found


def spread_excess(parts: Sequence[tuple[Shape, tuple[int, ...]]], comm: Comm, *, on_each: int) -> float:
    """Cost beyond the best for so many ranks over the worst, by the job's weight, 0 .. 1, as `perf.topology.excess`.

    The best is the fewest empty machines like the first, or as many as it takes where each is to have `on_each` ranks.
    """
    if not comm.weight:
        return 0.0
    counts = [len(gpus) for _, gpus in parts]
    ranks, shape = sum(counts), parts[0][0]
    inside = sum(cost(on, tuple(sorted(gpus)), comm.pattern) for on, gpus in parts)
    here = inside + ACROSS_MACHINES * _crossings(counts, comm.pattern)
    room = on_each or shape.gpus
    fewest = [room] * (ranks // room) + ([ranks % room] if ranks % room else [])
    best = sum(bounds(shape, count, comm.pattern).best for count in fewest)
    best += ACROSS_MACHINES * _crossings(fewest, comm.pattern)
    worst = max(here, ranks * ACROSS_MACHINES, ACROSS_MACHINES * _crossings([1] * ranks, comm.pattern))
    return max(0.0, here - best) / worst * comm.weight / WEIGHT_MAX


def _crossings(counts: Sequence[int], pattern: CommPattern) -> int:
    """Edges of the job graph between machines."""
    if len(counts) == 1:
        return 0
    if pattern is CommPattern.ALL:
        ranks = sum(counts)
        return (ranks * ranks - sum(count * count for count in counts)) // 2
    closes = pattern is CommPattern.RING and sum(counts) > 2
    return len(counts) - 1 + closes
