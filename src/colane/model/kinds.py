"""What kinds of jobs there are, and of what they do between two steps."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


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


class Category(StrEnum):
    """Kinds of training that differ in what their CPU side has to do (CODA, paper D, section IV-B)."""

    CV = "cv"
    """Images and video."""
    NLP = "nlp"
    """Text."""
    SPEECH = "speech"
    """Sound."""
    UNKNOWN = "unknown"


_BY_NAME: Final = {category.value: category for category in Category}


def parse_category(text: str) -> Category:
    """The category of that name, whatever its case; unknown where there is none such."""
    return _BY_NAME.get(text.strip().lower(), Category.UNKNOWN)


class CoreHint(StrEnum):
    """What an owner may say of the work between two steps, which changes how many cores a job starts with (ibid.)."""

    PIPELINED = "pipelined"
    """The next batch is made ready while the GPU works: one core fewer."""
    MANY_WEIGHTS = "many-weights"
    """Steps are long, so loading has time: one fewer."""
    COMPLEX_BETWEEN = "complex-between"
    """Much is computed on the CPU between two steps: one more."""
