"""What a scheduler is told to do in one of a few ways."""

from __future__ import annotations

from enum import StrEnum


class MetricNames(StrEnum):
    """Names of metrics besides Colane's own, which dashboards have already."""

    DCGM = "dcgm"
    SLURM = "slurm"


class See(StrEnum):
    """Which jobs users are told of; operators are told of all."""

    ALL = "all"
    OWN = "own"


class IdleRule(StrEnum):
    """What becomes of jobs that hold devices and use none."""

    NONE = "none"
    PARK = "park"
    STOP = "stop"
