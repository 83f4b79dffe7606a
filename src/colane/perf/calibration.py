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

PART: Final = 0.8  # of all truths an interval is to hold so many
BOTH_SIDES: Final = 1.2816  # 80 % of a normal distribution lie within so many standard deviations
WIDTH_MAX: Final = 4.0  # intervals become no more than so many times as wide, and no narrower than the inverse
PARTS: Final = np.linspace(1.0, 0.0, 11)
PART_POWER: Final = 20.0  # chosen on Gavel's tables and two others, 40 splits of their families
ERROR_MIN: Final = 1e-4  # of logs; parts that are apart by less are as good as each other
EVIDENCE_USUAL: Final = 5.0  # with so many left out a width counts half: before, intervals are taken to be right


class Judged(NamedTuple):
    """What was left out and foreseen from the rest, as logs of slowdowns; one of each for every measurement."""

    expected: Floats
    spread: Floats
    truth: Floats

    def only(self, chosen: NDArray[np.bool_]) -> Judged:
        """Those of some measurements."""
        return Judged(self.expected[chosen], self.spread[chosen], self.truth[chosen])


def left_out(
    precision: Floats, weights: Floats, truth: Floats, blocks: Iterable[Places], measuring: Floats | None = None
) -> Judged:
    """Leave out one block after the other.

    Args:
        precision: Inverse of the covariances of all measurements, noise included; n x n.
        weights: That times the deviations; n.
        truth: Logs of the slowdowns as measured; n.
        blocks: Places that are left out together.
        measuring: Variance of each measurement by itself, none where it is not given. It is no part of what is said of
            a pair that was not measured, so it is none of the spreads.
    """
    expected, spread, seen = [np.zeros(0)], [np.zeros(0)], [np.zeros(0)]
    for block in blocks:
        covariance = np.linalg.inv(precision[np.ix_(block, block)])
        expected.append(truth[block] - covariance @ weights[block])
        own = 0.0 if measuring is None else measuring[block]
        spread.append(np.sqrt(np.maximum(np.diag(covariance) - own, 1e-12)))
        seen.append(truth[block])
    return Judged(np.concatenate(expected), np.concatenate(spread), np.concatenate(seen))


def width(judged: Judged, usual: float = 1.0) -> float:
    """Factor on spreads with which 80 % intervals hold 80 % of what was left out; near the usual where that is little.

    No slowdown below 1 is ever believed, so what is expected is cut there. What was measured is not: jobs beside which
    a job seemed faster than alone were foreseen as well as their interval is wide. The quantile is that which holds
    for one more (Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005, chapter 2): of n, number
    0.8 (n + 1) by size.
    """
    count = len(judged.truth)
    if not count:
        return usual
    off = np.abs(judged.truth - np.maximum(0.0, judged.expected)) / judged.spread
    part = min(1.0, PART * (1.0 + 1.0 / count))
    nearest = min(WIDTH_MAX, max(1.0 / WIDTH_MAX, float(np.quantile(off, part)) / BOTH_SIDES))
    return float(usual * (nearest / usual) ** (count / (count + EVIDENCE_USUAL)))


def believed(judged: Judged, bound: Floats, blocks: Places, usual: float = 1.0) -> float:
    """Part of the expected deviations from a bound that foresees what was left out; near the usual where little was.

    The mean of all parts, each weighed by its error to the power of -`PART_POWER`: as by the likelihood of so many
    truths that scatter around what is expected by a Laplace distribution of unknown width. The error is the mean of the
    absolute errors of logs, each block counting alike: in one of a large family all are off in the same way. It is the
    usual part where all are as good as each other.

    Args:
        judged: What was left out.
        bound: Logs of the slowdowns by the bound alone; one for every measurement.
        blocks: Number of the block with which each was left out.
        usual: The part where little was left out.
    """
    count = len(judged.truth)
    if not count:
        return usual
    expected = np.maximum(0.0, bound + PARTS[:, None] * (judged.expected - bound))
    off = np.abs(np.maximum(0.0, judged.truth) - expected)
    errors = np.mean([off[:, blocks == block].mean(axis=1) for block in np.unique(blocks)], axis=0) + ERROR_MIN
    if float(np.ptp(errors)) < ERROR_MIN:
        return usual
    weights = (errors.min() / errors) ** PART_POWER
    part = float((weights * PARTS).sum() / weights.sum())
    return float(usual + (part - usual) * count / (count + EVIDENCE_USUAL))


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


def slowed_is_hidden(members: Sequence[tuple[int, int]], block: Places) -> NDArray[np.bool_]:
    """Of each measurement that is left out, whether nothing else is left of the kind of the slowed job."""
    out = set(block.tolist())
    left = {kind for at, pair in enumerate(members) if at not in out for kind in pair}
    return np.array([members[at][0] not in left for at in block], dtype=np.bool_)


def pairs(members: Sequence[tuple[int, int]]) -> list[Places]:
    """Places of each two jobs' measurements beside each other, for every two."""
    found: dict[tuple[int, int], list[int]] = {}
    for at, (one, other) in enumerate(members):
        found.setdefault((min(one, other), max(one, other)), []).append(at)
    return [np.array(places, dtype=np.int64) for places in found.values()] if len(found) > 1 else []
