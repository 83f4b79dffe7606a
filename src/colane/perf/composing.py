"""Rates made of factors: their times multiplied, the weakest source, and how far all that may be off.

What a source means is said in words here too. Decisions ask for rates (`perf.estimates`), not how they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt

from colane.model.profile import Value, ValueSource
from colane.perf.rate import NEUTRAL_FACTOR, STRENGTH, Factor, Factors, Prediction, Rate, RateSource

SOURCES: Mapping[RateSource, str] = {
    RateSource.GIVEN: "follows from the situation itself",
    RateSource.ORACLE: "told the truth",
    RateSource.MEASURED: "measured in this very situation",
    RateSource.DECLARED: "declared by its owner",
    RateSource.INTERPOLATED: "between situations that were measured",
    RateSource.FITTED: "fitted to other numbers of GPUs that were measured",
    RateSource.WORK_BOUND: "a GPU does no more than one second of work in a second",
    RateSource.THRESHOLD: "the threshold on the sum of C of its GPU type",
    RateSource.REGRESSION: "fitted to jobs that were measured together",
    RateSource.NO_EVIDENCE: "nothing tells that time slicing gains anything: as slow as taking turns",
    RateSource.DEFAULT: "nothing is known: a default",
    RateSource.NO_PROMISE: "its lane's rule promises it no share: an equal one is taken",
}

"""What each source means, for people."""

OF_VALUE: Mapping[ValueSource, RateSource] = {
    ValueSource.MEASURED: RateSource.MEASURED,
    ValueSource.DECLARED: RateSource.DECLARED,
    ValueSource.PREDICTED: RateSource.INTERPOLATED,
    ValueSource.DEFAULT: RateSource.DEFAULT,
}
"""What a profile's value counts as."""


def weakest(factors: Iterable[Factor]) -> Factor:
    """The factor whose source is worth least; of several alike the one with fewest samples."""
    link = NEUTRAL_FACTOR
    for factor in factors:
        strength, weakest_yet = STRENGTH[factor.source], STRENGTH[link.source]
        if strength > weakest_yet or (strength == weakest_yet and factor.samples < link.samples):
            link = factor
    return link


def spread_ratio(factors: Iterable[Factor], spreads: Mapping[RateSource, float]) -> float:
    """How far a slowdown may be off, as a part of it: the spreads of its factors, added as independent errors.

    A factor's spread is its own, else that of its source (`PerfConfig.spreads`); what was measured n times is off by
    the error of its mean and by what the next run differs, so it has sqrt(1 + 1/n) of it.

    Args:
        factors: What the slowdown is made of.
        spreads: Standard error of one factor by its source, as a part of it.
    """
    square = 0.0
    for factor in factors:
        if factor.spread_ratio is not None:
            square += factor.spread_ratio**2
            continue
        part = spreads[factor.source] ** 2
        square += part * (1 + 1 / max(1, factor.samples)) if factor.source is RateSource.MEASURED else part
    return sqrt(square)


def compose(
    alone: Value | None,
    factors: Factors,
    spreads: Mapping[RateSource, float],
    jobs: int = 1,
    together: Prediction | None = None,
) -> Rate:
    """The rate that these factors make.

    Args:
        alone: Time of a step alone in the same place, None while unknown.
        factors: What makes it differ from the reference.
        spreads: As for `spread_ratio`.
        jobs: How many run at once on its GPU.
        together: Speed-up of those.
    """
    step_s = None if alone is None else alone.value * factors.cores.slowdown * factors.co_runner_slowdown
    link, spread = weakest(factors), spread_ratio(factors, spreads)
    return Rate(alone, step_s, factors.slowdown, link.source, link.samples, spread, factors, jobs, together)
