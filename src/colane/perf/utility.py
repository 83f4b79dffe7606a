"""Utility of a placement, 0 .. 1 (paper C, section 4.2 and equation 2, in the normalised form of the authors' code).

Printed, equation 2 rewards interference and divides by zero; `docs/papers/topology.md` says what was put in its place.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

EPSILON = 0.01
"""A term that is at its best counts as this, so that no other can be divided by zero."""


class Measure(StrEnum):
    """How a slowdown counts in the utility, 0 .. 1."""

    EXCESS = "excess"
    """Slowdown less 1, over the worst there is: a small slowdown does not block a placement."""
    INVERSE = "inverse"
    """1 / slowdown, as in the authors' code: every neighbour that disturbs at all counts as bad, a mild one most."""


class Weights(NamedTuple):
    """Weights of communication, interference and fragmentation; they sum to 1."""

    comm: float = 1 / 3
    interference: float = 1 / 3
    fragmentation: float = 1 / 3


NEUTRAL = Weights()
"""As in the paper's evaluation."""
FELT_FIRST = Weights(0.4995, 0.4995, 0.001)
"""Fragmentation decides only between places where no job would feel a difference: all it can change of a utility is
less than what interference of 1.1 % of the worst does."""
WEIGHT_SETS = {
    "neutral": NEUTRAL,
    "interference": Weights(0.1, 0.8, 0.1),
    "spread": Weights(0.1, 0.1, 0.8),
    "locality": Weights(0.8, 0.1, 0.1),
}
"""The named sets of the authors' configuration files."""


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
