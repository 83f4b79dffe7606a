"""Settings of the beliefs. Nothing here is a constant of nature: override them per cluster and GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from colane.perf.rate import RateSource

V100_OCCUPANCY_MAX = 4e7
"""Paper A's threshold on the sum of C for its V100, in percent x us over two steps (section 4.3)."""


SPREADS: Mapping[RateSource, float] = {
    RateSource.GIVEN: 0.0,
    RateSource.ORACLE: 0.0,
    RateSource.MEASURED: 0.05,
    RateSource.DECLARED: 0.1,
    RateSource.INTERPOLATED: 0.2,
    RateSource.FITTED: 0.2,
    RateSource.REGRESSION: 0.3,
    RateSource.WORK_BOUND: 0.37,
    RateSource.THRESHOLD: 0.48,
    RateSource.NO_EVIDENCE: 0.5,
    RateSource.DEFAULT: 1.0,
    RateSource.NO_PROMISE: 1.0,
}
"""Of bound and threshold: what 68 % of the jobs in Gavel's measured V100 pairs lie within. What is fitted to measured
sets says its own (`perf.interference`; coverage: `benchmarks/predict.py`). The others are assumptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfConfig:
    """How beliefs are formed."""

    # threshold on the sum of C by GPU type; above it co-location is predicted not to pay
    occupancy_max: Mapping[str, float] = field(
        default_factory=lambda: {
            "Tesla V100-SXM2-16GB": V100_OCCUPANCY_MAX,
            "Tesla V100-SXM2-32GB": V100_OCCUPANCY_MAX,
            "Tesla V100-PCIE-16GB": V100_OCCUPANCY_MAX,
            "Tesla V100-PCIE-32GB": V100_OCCUPANCY_MAX,
        }
    )
    # measured sets of a GPU type before they go before its threshold, and before paper A's line is drawn
    sets_min: int = 5
    # steps each job must make next to its co-runners before it counts as measured (paper A samples 10)
    steps_min: int = 10
    samples_max: int = 10_000  # weight of history against new samples, so that a belief can follow a changed script
    persistent_factor: float = 1.1  # safety factor on measured P (the released Salus uses 1.1)
    total_factor: float = 1.05  # safety factor on measured P + E (the released Salus uses 1.05)
    # after so many attempts of which none needed as much, what was once needed of memory counts no more. Of n attempts
    # and one more, each is the largest of them with the same probability, so the next needs more than the last n did at
    # most once in n + 1 times; and what it needs is learnt as soon as it is seen
    memory_attempts: int = 20
    # standard error of one factor of a rate by its source, as a part of it
    spreads: Mapping[RateSource, float] = field(default_factory=lambda: dict(SPREADS))
