"""What the papers call the speed of a job with co-runners, read off its rate."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from colane.model.job import JobSpec
from colane.model.profile import ProfileKey
from colane.perf.estimates import Estimates
from colane.perf.rate import Rate, Situation
from colane.perf.utility import Measure


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


def summed_speed(rates: Iterable[Rate]) -> float:
    """Sum of the speeds of jobs that share: Gavel's normalised throughput; above 1, they do more than one alone."""
    return sum([rate.ratio for rate in rates])
