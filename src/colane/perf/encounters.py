"""One job next to another on a GPU: which, how much it was slowed, how much that is expected."""

from __future__ import annotations

from math import log
from typing import NamedTuple

ALL_OF_IT = 1.0
"""Demand of a job of which none is known."""


class CoRunnerTraits(NamedTuple):
    """What a job's slowdown by co-runners may depend on; None is unknown.

    Attributes:
        family: Of the job.
        batch: Log2 of its batch size.
        step: Natural log of its step time alone, in seconds.
        demand: Part of a GPU that it keeps busy alone.
    """

    family: str
    batch: float | None = None
    step: float | None = None
    demand: float | None = None


class Encounter(NamedTuple):
    """One job beside another on a GPU.

    Attributes:
        gpu_type: Of the GPU.
        sharing: How they share it.
        me: The job that is slowed.
        other: The job that slows it.
    """

    gpu_type: str
    sharing: str
    me: CoRunnerTraits
    other: CoRunnerTraits


class Sighting(NamedTuple):
    """A slowdown that was measured.

    Attributes:
        encounter: Of which jobs.
        log_slowdown: Natural log of step time together over alone.
        variance: Of measuring, of that log.
    """

    encounter: Encounter
    log_slowdown: float
    variance: float


class Estimate(NamedTuple):
    """What is expected of a slowdown.

    Attributes:
        log_slowdown: Natural log, its median.
        variance: Of that log.
        evidence: Part of what was uncertain before anything was measured that no longer is, 0 to 1.
    """

    log_slowdown: float
    variance: float
    evidence: float


def log_bound(me: CoRunnerTraits, other: CoRunnerTraits) -> float:
    """Log of the least slowdown of two jobs on a device that does no more than a second of work in a second."""
    first = ALL_OF_IT if me.demand is None else me.demand
    second = ALL_OF_IT if other.demand is None else other.demand
    return max(0.0, log(max(1e-9, first + second)))
