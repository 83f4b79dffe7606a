"""What kinds of jobs there are."""

from __future__ import annotations

from enum import StrEnum


class JobKind(StrEnum):
    """What a job's steps are."""

    TRAINING = "training"
    """Optimizer steps."""
    INFERENCE = "inference"
    """Requests, answered by a resident process."""


class CommPattern(StrEnum):
    """Which ranks of a job talk to each other."""

    ALL = "all"
    """Every pair, as in data-parallel training."""
    RING = "ring"
    PIPELINE = "pipeline"


class Ranks(StrEnum):
    """How many processes of a job are started."""

    ONE = "one"
    PER_GPU = "per-gpu"


class BatchOf(StrEnum):
    """What its batch size is of."""

    GLOBAL = "global"
    PER_GPU = "per-gpu"


class Qos(StrEnum):
    """How a job is served."""

    DEBUG = "debug"
    NORMAL = "normal"
    SWEEP = "sweep"
