"""Speed-up of running a set of jobs on one GPU at once (paper A, sections 4.1 to 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OCCUPANCY_UNITS_PER_S = 100 * 1e6 * 2
"""C counts percent x us over two steps: a step of 1 s at full occupancy counts 2e8."""


def delta(alone_s: Sequence[float], together_s: Sequence[float]) -> float:
    """Eq. 4.1: sum of step times alone / longest step time together; co-location pays when >= 1.

    It holds for jobs that start together and make equally many steps.
    """
    return sum(alone_s) / max(together_s)


def delta_general(steps: Sequence[int], alone_s: Sequence[float], makespan_s: float) -> float:
    """Eq. 4.1 for unequal numbers of steps: time one after another / time together."""
    return sum(k * t for k, t in zip(steps, alone_s, strict=True)) / makespan_s


def threshold_speedup(jobs: int, occupancy: float, occupancy_max: float) -> float:
    """Paper A's rule as a line: `jobs` at no load, 1 at the threshold, below 1 above it."""
    return 1 + (jobs - 1) * (1 - occupancy / occupancy_max)


class LinearFit(NamedTuple):
    """Least-squares fit delta = w0 + w1 * sum of C + w2 * sum of M over measured sets."""

    w0: float
    w1: float
    w2: float
    sets: int

    def speedup(self, occupancy: float, bandwidth: float) -> float:
        """Predicted speed-up at these sums."""
        return self.w0 + self.w1 * occupancy + self.w2 * bandwidth


def fit_line(points: Sequence[tuple[float, float, float]]) -> LinearFit:
    """Fit delta over (sum of C, sum of M, delta); a feature that never varies gets weight 0.

    Raises ValueError: there is no point.
    """
    import numpy as np  # noqa: PLC0415 - the core must import without numpy

    if not points:
        message = "no measured set to fit"
        raise ValueError(message)
    table = np.asarray(points, dtype=float)
    scale = np.where(table[:, :2].any(axis=0), np.abs(table[:, :2]).max(axis=0), 1.0)
    design = np.column_stack([np.ones(len(table)), table[:, :2] / scale])
    weights, *_ = np.linalg.lstsq(design, table[:, 2], rcond=None)
    return LinearFit(float(weights[0]), float(weights[1] / scale[0]), float(weights[2] / scale[1]), len(table))
