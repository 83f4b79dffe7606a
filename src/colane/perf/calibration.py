"""Whether intervals hold what they promise: a model's own measurements, left out in turn and foreseen from the others.

What is left out of a Gaussian process is foreseen without fitting it anew (Rasmussen and Williams, Gaussian Processes
for Machine Learning, section 5.4.2; blocks after Sundararajan and Keerthi, Neural Computation 13, 2001): with the
inverse P of all covariances, deviations y and a block I left out, they are off by inv(P_II) (P y)_I, and expected to be
off by variances that are the diagonal of inv(P_II).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

PART: Final = 0.8
"""Of all truths an interval is to hold so many."""
BOTH_SIDES, ONE_SIDE = 1.2816, 0.8416
"""80 % of a normal distribution lie within so many standard deviations, and below so many."""
WIDTHS: Floats = np.exp(np.linspace(np.log(0.25), np.log(4.0), 65))
EVIDENCE_USUAL: Final = 5.0
"""With so many left out a width counts half: before, intervals are taken to be right."""


class Judged(NamedTuple):
    """What was left out and foreseen from the rest, as logs of slowdowns; one of each for every measurement."""

    expected: Floats
    spread: Floats
    truth: Floats


def left_out(precision: Floats, weights: Floats, truth: Floats, blocks: Iterable[Places]) -> Judged:
    """Leave out one block after the other.

    Args:
        precision: Inverse of the covariances of all measurements, noise included; n x n.
        weights: That times the deviations; n.
        truth: Logs of the slowdowns as measured; n.
        blocks: Places that are left out together.
    """
    expected, spread, seen = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for block in blocks:
        covariance = np.linalg.inv(precision[np.ix_(block, block)])
        expected.append(truth[block] - covariance @ weights[block])
        spread.append(np.sqrt(np.maximum(np.diag(covariance), 1e-12)))
        seen.append(truth[block])
    return Judged(np.concatenate(expected), np.concatenate(spread), np.concatenate(seen))


def width(judged: Judged) -> float:
    """Factor on spreads with which 80 % intervals hold 80 % of what was left out; near 1 where that is little.

    No slowdown is below 1: an interval that would reach below it begins there, and a fifth lies above it.
    """
    count = len(judged.truth)
    if not count:
        return 1.0
    at, spread = np.maximum(0.0, judged.expected), WIDTHS[:, None] * judged.spread
    is_open = at > BOTH_SIDES * spread
    most = at + np.where(is_open, BOTH_SIDES, ONE_SIDE) * spread
    least = np.where(is_open, at - BOTH_SIDES * spread, 0.0)
    held = ((least <= judged.truth) & (judged.truth <= most)).mean(axis=1)
    nearest = float(np.log(WIDTHS[int(np.abs(held - PART).argmin())]))
    return float(np.exp(nearest * count / (count + EVIDENCE_USUAL)))


def folds(members: Sequence[tuple[int, int]], count: int) -> list[Places]:
    """Places of the measurements in which one of a fold's jobs has a part, for each of so many folds of the jobs.

    Args:
        members: Numbers of the slowed and the slowing job, by measurement.
        count: Folds.
    """
    kinds = sorted({kind for pair in members for kind in pair})
    places, parts = [], min(count, len(kinds))
    for fold in range(parts):
        hidden = set(kinds[fold::parts])
        places.append(np.array([at for at, pair in enumerate(members) if not hidden.isdisjoint(pair)], dtype=np.int64))
    return [block for block in places if 0 < len(block) < len(members)]


def pairs(members: Sequence[tuple[int, int]]) -> list[Places]:
    """Places of each two jobs' measurements beside each other, for every two."""
    found: dict[tuple[int, int], list[int]] = {}
    for at, (one, other) in enumerate(members):
        found.setdefault((min(one, other), max(one, other)), []).append(at)
    return [np.array(places, dtype=np.int64) for places in found.values()] if len(found) > 1 else []
