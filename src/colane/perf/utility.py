"""Utility of a placement, 0 .. 1, and the interference that counts in it, read off rates.

Source: paper C, section 4.2 and equation 2, in the normalised form of the authors' code. Printed, equation 2 rewards
interference and divides by zero; `docs/papers/topology.md` says what was put in its place.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from colane.model.job import JobSpec
from colane.model.profile import ProfileKey
from colane.perf.estimates import Estimates
from colane.perf.rate import Rate, Situation

EPSILON = 0.01  # a term that is at its best counts as this, so that no other can be divided by zero


class Measure(StrEnum):
    """How a slowdown counts in the utility, 0 .. 1."""

    EXCESS = "excess"  # slowdown less 1, over the worst there is: a small slowdown does not block a placement
    INVERSE = "inverse"
    """1 / slowdown, as in the authors' code: every neighbour that disturbs at all counts as bad, a mild one most."""


class Weights(NamedTuple):
    """Weights of communication, interference and fragmentation; they sum to 1."""

    comm: float = 1 / 3
    interference: float = 1 / 3
    fragmentation: float = 1 / 3


NEUTRAL = Weights()  # as in the paper's evaluation
FELT_FIRST = Weights(0.4995, 0.4995, 0.001)
"""Fragmentation decides only between places where no job would feel a difference: all it can change of a utility is
less than what interference of 1.1 % of the worst does."""


def job_utility(comm: float, interference: float, weights: Weights = NEUTRAL) -> float:
    """How well a job is served: 1 is ideal. Fragmentation is the system's concern.

    Args:
        comm: Communication cost beyond the best, over the worst (`perf.topology.excess`).
        interference: Slowdown by its neighbours over the worst there is.
        weights: Of the terms.
    """
    total = weights.comm + weights.interference
    first, second = weights.comm / total, weights.interference / total
    return _utility((comm, interference), (first, second))


def system_utility(comm: float, interference: float, fragmentation: float, weights: Weights = NEUTRAL) -> float:
    """How good a placement is for the cluster: 1 is ideal.

    Args:
        comm: As for `job_utility`.
        interference: Mean of what the job suffers and what it causes, over the worst there is.
        fragmentation: Mean over the sockets of the part of GPUs left free (equation 5).
        weights: Of the terms.
    """
    return _utility((comm, interference, fragmentation), weights)


def _utility(terms: tuple[float, ...], weights: tuple[float, ...]) -> float:
    """The least the terms can sum to over what they do."""
    ideal, total = 0.0, 0.0
    for value, weight in zip(terms, weights, strict=True):
        ideal += pow(EPSILON, weight)
        total += pow(min(1.0, max(EPSILON, value)), weight)
    return ideal / total


# -- interference, and paper A's speed-up


def speedup(rate: Rate) -> float | None:
    """Paper A's delta of a job and those that run at once with it on its GPU; 1 alone, None while too little is known.

    Where all are slowed alike it is the sum of their ratios; sharing pays from 1 on (section 4.1).
    """
    if rate.jobs == 1:
        return 1.0
    return None if rate.together is None else rate.together.speedup


def harm(rate: Rate) -> float:
    """Paper C's interference: time with co-runners over time alone in the same place, less 1 (section 4.2)."""
    return rate.factors.co_runner_slowdown - 1.0


def gpu_harm(rate: Rate, worst: float) -> float | None:
    """Interference of those on its own GPU over the worst there is, 0 .. 1; None while their speed-up is unknown."""
    if speedup(rate) is None:
        return None
    return min(1.0, (rate.factors.gpu.slowdown - 1.0) / worst)


def bus_harm(rate: Rate, worst: float, measure: Measure = Measure.EXCESS) -> float:
    """Interference of the neighbours on its sockets over the worst there is, 0 .. 1."""
    slowdown = rate.factors.bus.slowdown
    if measure is Measure.INVERSE:
        return 1.0 / slowdown if slowdown > 1.0 else 0.0
    return min(1.0, (slowdown - 1.0) / worst)


def harm_beside(beliefs: Estimates, key: ProfileKey, other: ProfileKey, measure: Measure = Measure.EXCESS) -> float:
    """What one kind of job suffers from another on its sockets, 0 nothing .. 1 the worst (see `bus_harm`)."""
    if not beliefs.neighbours.knows(key, other):  # asked for every pair that meets, and hardly any is known
        return 0.0
    rate = beliefs.rate(_spec(key), Situation(key.gpu_type, near=(other,)))
    return bus_harm(rate, beliefs.neighbours.worst, measure)


@lru_cache(maxsize=1 << 12)
def _spec(key: ProfileKey) -> JobSpec:
    """Any job of a kind."""
    return JobSpec(name="", family=key.family, batch_size=key.batch_size, gpus=key.gpus)
