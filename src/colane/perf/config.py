"""Settings of the beliefs. Nothing here is a constant of nature: override them per cluster and GPU type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

V100_OCCUPANCY_MAX = 4e7
"""Paper A's threshold on the sum of C for its V100, in percent x us over two steps (section 4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfConfig:
    """How beliefs are formed.

    Attributes:
        occupancy_max: Threshold on the sum of C by GPU type; above it co-location is predicted not to pay.
        sets_min: Measured sets of a GPU type before the regression is trusted; it has three coefficients.
        steps_min: Steps each job must make in a company before it counts as measured (paper A samples 10).
        samples_max: Weight of history against new samples, so that a belief can follow a changed script.
        persistent_factor: Safety factor on measured P (the released Salus uses 1.1).
        total_factor: Safety factor on measured P + E (the released Salus uses 1.05).
    """

    occupancy_max: Mapping[str, float] = field(
        default_factory=lambda: {
            "Tesla V100-SXM2-16GB": V100_OCCUPANCY_MAX,
            "Tesla V100-SXM2-32GB": V100_OCCUPANCY_MAX,
            "Tesla V100-PCIE-16GB": V100_OCCUPANCY_MAX,
            "Tesla V100-PCIE-32GB": V100_OCCUPANCY_MAX,
        }
    )
    sets_min: int = 5
    steps_min: int = 10
    samples_max: int = 10_000
    persistent_factor: float = 1.1
    total_factor: float = 1.05
