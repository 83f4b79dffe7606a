"""One job next to another on a GPU: which, how much it was slowed, how much that is expected."""

from __future__ import annotations

from math import log
from typing import NamedTuple

ALL_OF_IT = 1.0  # demand of a job of which none is known


class CoRunnerTraits(NamedTuple):
    """What a job's slowdown by co-runners may depend on; None is unknown."""

    family: str  # of the job
    batch: float | None = None  # log2 of its batch size
    step: float | None = None  # natural log of its step time alone, in seconds
    demand: float | None = None  # part of a GPU that it keeps busy alone


class Encounter(NamedTuple):
    """One job beside another on a GPU."""

    gpu_type: str  # of the GPU
    sharing: str  # how they share it
    me: CoRunnerTraits  # the job that is slowed
    other: CoRunnerTraits  # the job that slows it


class Sighting(NamedTuple):
    """A slowdown that was measured."""

    encounter: Encounter  # of which jobs
    log_slowdown: float  # natural log of step time together over alone
    variance: float  # of measuring, of that log


class Estimate(NamedTuple):
    """What is expected of a slowdown."""

    log_slowdown: float  # natural log, its median
    variance: float  # of that log
    evidence: float  # part of what was uncertain before anything was measured that no longer is, 0 to 1


def log_bound(me: CoRunnerTraits, other: CoRunnerTraits) -> float:
    """Log of the least slowdown of two jobs on a device that does no more than a second of work in a second."""
    first = ALL_OF_IT if me.demand is None else me.demand
    second = ALL_OF_IT if other.demand is None else other.demand
    return max(0.0, log(max(1e-9, first + second)))
