"""How well a job would lie on one node: what both placers, exact and DRB, are asked and answer (paper C, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from colane.model.job import CommPattern
from colane.perf.topology import (
    ACROSS_MACHINES,
    WEIGHT_MAX,
    Comm,
    Shape,
    best_order,
    bounds,
    cost,
    distinct_sets,
    excess,
)
from colane.perf.utility import NEUTRAL, Weights, job_utility, system_utility


class Neighbour(NamedTuple):
    """A job that runs on a node, as one that would come sees it."""

    sockets: int  # where it runs, one bit for each socket
    suffered: float  # what the newcomer would suffer from it on a common socket, over the worst interference there is
    caused: float  # what it would suffer from the newcomer


class Question(NamedTuple):
    """All that decides where on a node a job lies best; equal questions have equal answers."""

    shape: Shape  # GPUs and their distances
    free: int  # free GPUs it may use, one bit for each
    neighbours: tuple[Neighbour, ...]  # jobs on the node, sorted; those that do not matter left out
    ranks: int  # GPUs it asks for
    comm: Comm = Comm()  # its job graph
    weights: Weights = NEUTRAL  # of the utility's terms
    shared: float = 0.0  # interference it would suffer on its GPUs themselves, over the worst; 0 on free ones


class Fit(NamedTuple):
    """One answer."""

    system: float  # utility for the cluster; more is better
    job: float  # utility for the job
    gpus: tuple[int, ...]  # in rank order


def interference(question: Question, sockets: int) -> tuple[float, float]:
    """What a job on these sockets would suffer and what it would cause, over the worst.

    It goes at the pace its worst neighbour leaves it (the authors' execution model), or its co-runners on the GPU if
    that is worse; what it causes is the mean over the neighbours it would disturb.
    """
    near = [neighbour for neighbour in question.neighbours if neighbour.sockets & sockets]
    suffered = max([question.shared, *(neighbour.suffered for neighbour in near)])
    caused = sum(neighbour.caused for neighbour in near) / len(near) if near else 0.0
    return suffered, max(caused, question.shared)


def left_free(question: Question, gpus: Sequence[int]) -> float:
    """Equation 5 after the job has come: mean over the sockets of the part of GPUs free."""
    shape, left = question.shape, question.free
    for gpu in gpus:
        left &= ~(1 << gpu)
    sizes = shape.socket_sizes
    free = [0] * len(sizes)
    for gpu, socket in enumerate(shape.sockets):
        free[socket] += left >> gpu & 1
    return sum(count / size for count, size in zip(free, sizes, strict=True)) / len(sizes)


def sockets_broken(question: Question, gpus: Sequence[int]) -> int:
    """Sockets of which all GPUs are free now and some will be free then."""
    shape = question.shape
    broken = 0
    for socket, size in enumerate(shape.socket_sizes):
        members = [gpu for gpu, on in enumerate(shape.sockets) if on == socket]
        taken = sum(gpu in gpus for gpu in members)
        broken += 0 < taken < size and all(question.free >> gpu & 1 for gpu in members)
    return broken


class _SetJudge:
    """Judges sets of GPUs for one question; what many sets have in common is worked out once."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._shape = question.shape
        self._by_sockets: dict[int, tuple[float, float]] = {}
        sizes = question.shape.socket_sizes
        gpu_group = len(set(sizes)) == 1
        self._left = (question.free.bit_count() - question.ranks) / question.shape.gpus if gpu_group else None

    def __call__(self, gpus: tuple[int, ...]) -> Fit:
        """Utilities of one set, ascending; the GPUs are not yet in rank order."""
        question = self._question
        comm = excess(self._shape, gpus, question.comm)
        sockets = self._shape.sockets_of(gpus)
        found = self._by_sockets.get(sockets)
        if found is None:
            found = self._by_sockets[sockets] = interference(question, sockets)
        left = left_free(question, gpus) if self._left is None else self._left
        system = system_utility(comm, (found[0] + found[1]) / 2, left, question.weights)
        return Fit(system, job_utility(comm, found[0], question.weights), gpus)


def judge(question: Question, gpus: tuple[int, ...]) -> Fit:
    """Utilities of one set of GPUs, ascending; the answer has them in rank order."""
    fit = _SetJudge(question)(gpus)
    return fit._replace(gpus=best_order(question.shape, gpus, question.comm.pattern))


def front(question: Question, sets: Iterable[tuple[int, ...]]) -> tuple[Fit, ...]:
    """Answers worth having, best for the cluster first: each later one is better for the job.

    Of equally good sets the one that leaves more sockets whole comes first, then that of the lowest numbers.
    """
    fits = sorted(map(_SetJudge(question), sets), key=lambda fit: (-fit.system, -fit.job))
    kept: list[Fit] = []
    for (_, job), equal in groupby(fits, key=itemgetter(0, 1)):
        if not kept or job > kept[-1].job:
            best = min(equal, key=lambda fit: (sockets_broken(question, fit.gpus), fit.gpus))
            kept.append(best._replace(gpus=best_order(question.shape, best.gpus, question.comm.pattern)))
    return tuple(kept)


@lru_cache(maxsize=1 << 17)
def exact(question: Question) -> tuple[Fit, ...]:
    """Best sets for a job on a node of all free ones that differ; the best for the cluster first. Empty: no room.

    Later ones are better for the job.
    """
    return front(question, distinct_sets(question.shape, question.free, question.ranks))


# -- a job over several nodes


def harm_over_nodes(parts: Iterable[tuple[Question, tuple[int, ...]]]) -> tuple[float, float]:
    """What it would suffer and cause on these GPUs where that is most, as `interference` on one node."""
    harm = [interference(on, on.shape.sockets_of(gpus)) for on, gpus in parts]
    return max([suffered for suffered, _ in harm]), max([caused for _, caused in harm])


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
