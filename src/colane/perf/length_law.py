"""The law of a family's lengths: what its ended jobs and those that have not ended tell, and what all families do.

A length is log-normal, or with some probability one of the lengths of all jobs. Of a grid of such laws each is as
likely as it makes what was seen: the length of each job that ended, and that each other has outlasted what it has had.
Without the latter a job that has run for long loses its place to another of its family, which is as long. The mean of
the laws then counts as a few jobs beside the family's own, and each job that has not ended for one that ends after what
it has had (Dirichlet process: Ferguson, A Bayesian analysis of some nonparametric problems, Annals of Statistics 1,
1973; with unended ones as Susarla and Van Ryzin, Journal of the American Statistical Association 71, 1976). Which laws
are likely beforehand is learnt of all families.

Jobs are ranked by the Gittins quotient, E[min(rest, slice)] / P(rest <= slice) of the slice of time for which that is
least: where lengths are drawn from a known law no order has a lesser mean time to the end (Gittins, Glazebrook and
Weber, Multi-armed Bandit Allocation Indices, 2011, section 3; Aalto, Ayesta and Righter, On the Gittins index in the
M/G/1 queue, 2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from math import erfc, exp, inf, log, sqrt
from typing import Final

from colane.model.lengths import BINS_PER_OCTAVE

BINS: Final = 20 * BINS_PER_OCTAVE  # lengths are told apart from 16 seconds up to 194 days, by the bins of records

FIRST_BIN: Final = 4 * BINS_PER_OCTAVE  # what a record has in bins before that is in this

EDGES_S: Final[list[float]] = [2.0 ** ((FIRST_BIN + place) / BINS_PER_OCTAVE) for place in range(BINS + 1)]
MIDS_S: Final[list[float]] = [sqrt(low_s * high_s) for low_s, high_s in pairwise(EDGES_S)]

MU_STEP: Final = 2  # the laws' medians are so many bins apart

SIGMAS: Final[list[float]] = [0.1, 0.25, 0.55, 1.2, 2.6]  # their standard deviations of the logarithm,

SIGMA_WEIGHTS: Final[list[float]] = [0.5, 0.5, 0.5, 0.5, 0.3]

COMMON_PARTS: Final[list[float]] = [0.003, 0.25]  # and which part of a family's jobs is as all jobs are

COMMON_WEIGHTS: Final[list[float]] = [1.0, 0.6]

COMMON_OUTLAST: Final = 0.3  # of all jobs so many are taken to outlast whatever time is asked for

MEDIANS: Final = BINS // MU_STEP
KINDS: Final = len(SIGMAS) * len(COMMON_PARTS)
"""Pairs of a deviation and a common part; the cells of the grid are these times the medians, in this order."""

CELLS: Final = KINDS * MEDIANS

LOG_MEDIANS: Final[list[float]] = [log(MIDS_S[number * MU_STEP]) for number in range(MEDIANS)]

MEDIAN_S: Final = 3600.0
MEDIAN_VARIANCE: Final = 2.0  # of the logarithm of a family's median, before any is known

MEDIAN_FAMILIES: Final = 0.5
VARIANCE_FAMILIES: Final = 3.0  # these count as so many families

LAW_JOBS: Final = 4.0  # the mean of the laws counts as so many jobs beside the family's own

COMMON_JOBS: Final = 4.0  # lengths of all kinds count as so many beside those of all jobs that have ended

ROUNDS: Final = 3
"""So often jobs that have not ended are spread over what is left of the law, which they are part of themselves."""

UNLIKELY: Final = 2e-4  # a law that is less likely is left out of the mean

NONE_LEFT: Final = 1e-12  # of so small a part of a family's jobs nothing is said

UNKNOWN_S: Final = 600.0  # what a job that has outlasted the longest of lengths is taken to have left at least

UNKNOWN_PART: Final = 0.5  # the probability of what the law says nothing of


def _upper_tail(x: float) -> float:
    return 0.5 * erfc(x / sqrt(2.0))


_WIDTH: Final = log(2.0) / BINS_PER_OCTAVE


def _bin_part(sigma: float, at: int) -> float:
    """Part of a log-normal law that ends in the bin so many after that of its median."""
    low, high = (at - 0.5) * _WIDTH / sigma, (at + 0.5) * _WIDTH / sigma
    part = _upper_tail(low) - _upper_tail(high) if low > 0 else _upper_tail(-high) - _upper_tail(-low)
    return part + 1e-7


def _rows(of: list[list[float]]) -> list[list[float]]:
    """What each bin says of each cell, by what each kind says of the bins before and after its median."""
    found: list[list[float]] = []
    for number in range(BINS):
        row: list[float] = []
        for line in of:
            row += [line[number - median * MU_STEP + BINS] for median in range(MEDIANS)]
        found.append(row)
    return found


class _Grid:
    """What is worked out once."""

    def __init__(self) -> None:
        places = range(-BINS, BINS + 1)
        parts = [[_bin_part(sigma, at) for at in places] for sigma in SIGMAS]
        tails = [[_upper_tail((at - 0.5) * _WIDTH / sigma) for at in places] for sigma in SIGMAS]
        kinds = [(number, common) for common in COMMON_PARTS for number in range(len(SIGMAS))]
        self.parts: Final = [
            line[BINS - median * MU_STEP : 2 * BINS - median * MU_STEP] for line in parts for median in range(MEDIANS)
        ]
        """What each deviation and median says of the bins."""
        self.ended: Final = _rows([[log((1 - c) * x + c / BINS) for x in parts[n]] for n, c in kinds])
        """Logarithm of what each cell gives a bin,"""
        self.outlasted: Final = _rows(
            [[log((1 - c) * x + c * COMMON_OUTLAST + 1e-6) for x in tails[n]] for n, c in kinds]
        )
        """and the lengths from it on."""


_GRIDS: list[_Grid] = []


def _grid() -> _Grid:
    """Made when first asked for: programs that decide nothing need it not."""
    if not _GRIDS:
        _GRIDS.append(_Grid())
    return _GRIDS[0]


class Believed:
    """Which laws are how likely of one family: the mean and the variance of its median's logarithm, and of each kind.

    Attributes:
        mean: Of the logarithm of its median.
        variance: Likewise.
        kinds: Of each pair of a deviation and a common part.
    """

    __slots__ = ("kinds", "mean", "variance")

    def __init__(self, mean: float, variance: float, kinds: list[float]) -> None:
        self.mean: Final = mean
        self.variance: Final = variance
        self.kinds: Final = kinds


def prior(families: Iterable[Believed]) -> list[float]:
    """Logarithms of how likely each cell is beforehand, by what is believed of families of which jobs have ended."""
    known = list(families)
    mean = (sum([one.mean for one in known]) + MEDIAN_FAMILIES * log(MEDIAN_S)) / (len(known) + MEDIAN_FAMILIES)
    spread = sum([one.variance + (one.mean - mean) ** 2 for one in known])
    variance = (spread + VARIANCE_FAMILIES * MEDIAN_VARIANCE) / (len(known) + VARIANCE_FAMILIES)
    kinds = [sigma * common for common in COMMON_WEIGHTS for sigma in SIGMA_WEIGHTS]
    for one in known:
        kinds = [weight + more for weight, more in zip(kinds, one.kinds, strict=True)]
    all_kinds = sum(kinds)
    medians = [-0.5 * (at - mean) ** 2 / variance for at in LOG_MEDIANS]
    return [log(weight / all_kinds) + at for weight in kinds for at in medians]


def place_of(number: int) -> int:
    """The bin of the law that a bin of a record is in."""
    return min(max(number - FIRST_BIN, 0), BINS - 1)


Counts = Iterable[tuple[int, float]]  # bins, and how many jobs are in each


def smoothed(counts: Counts) -> list[float]:
    """So many jobs in each bin, a fifth of each moved to either side."""
    found = [0.0] * BINS
    for number, jobs in counts:
        place = place_of(number)
        found[place] += 0.6 * jobs
        found[max(place - 1, 0)] += 0.2 * jobs
        found[min(place + 1, BINS - 1)] += 0.2 * jobs
    return found


def common_law(counts: Mapping[int, float]) -> list[float]:
    """The lengths of all jobs, by those that have ended."""
    jobs = sum(counts.values()) + COMMON_JOBS
    return [(one + COMMON_JOBS / BINS) / jobs for one in smoothed(sorted(counts.items()))]


def score(counts: Counts) -> list[float]:
    """Logarithms of how likely each cell makes the lengths of these jobs."""
    found, rows = [0.0] * CELLS, _grid().ended
    for number, jobs in counts:
        row = rows[place_of(number)]
        found = [found[at] + jobs * row[at] for at in range(CELLS)]
    return found


class Law:
    """Of one family: which part of its jobs ends in which bin, and what follows for a job by what it has had."""

    def __init__(self, believed: Believed, parts: list[float]) -> None:
        self.believed: Final = believed
        self.parts: Final = parts
        self._left_s: dict[int, float] = {}

    @staticmethod
    def of(
        beforehand: list[float], ended: Counts, told: list[float], unended: Mapping[int, float], common: list[float]
    ) -> Law:
        """Return the law that follows.

        Args:
            beforehand: How likely each cell is.
            ended: Of each bin, how many jobs have ended in it.
            told: Their `score`.
            unended: Of each bin, how many jobs that have not ended have had so much.
            common: The lengths of all jobs.
        """
        grid = _grid()
        cells = [beforehand[at] + told[at] for at in range(CELLS)]  # by place: compiled, a pair takes as long as a sum
        for number, jobs in unended.items():
            row = grid.outlasted[number]
            cells = [cells[at] + jobs * row[at] for at in range(CELLS)]
        most = max(cells)
        cells = [exp(one - most) if one > most - 30.0 else 0.0 for one in cells]
        part = 1.0 / sum(cells)
        cells = [part * one for one in cells]
        believed = _believed(cells)
        return Law(believed, _mixed(_mean_law(grid, cells, believed.kinds, common), ended, unended))

    def left_s(self, number: int) -> float:
        """The Gittins quotient of a job that has had as much as this bin begins with; below 0 nothing yet."""
        left_s = self._left_s.get(number)
        if left_s is None:
            left_s = self._left_s[number] = self._quotient_s(number)
        return left_s

    def _quotient_s(self, number: int) -> float:
        parts, first, age_s = self.parts, max(number, 0), _begin_s(number)
        left = all_left = sum(parts[first:])
        if left < NONE_LEFT:
            return max(age_s, UNKNOWN_S)
        ended, spent_s, best_s = 0.0, 0.0, inf
        for place in range(first, BINS):
            part, most_s = parts[place], EDGES_S[place + 1] - age_s
            ended += part
            spent_s += part * max(MIDS_S[place] - age_s, 0.5 * most_s)
            left -= part
            if ended > 1e-9 * all_left:
                best_s = min(best_s, (spent_s + most_s * max(left, 0.0)) / ended)
        return best_s

    def quantile_s(self, number: int, part: float) -> float:
        """What so large a part of jobs that have had so much has left at most."""
        parts, first, age_s = self.parts, max(number, 0), _begin_s(number)
        left = part * sum(parts[first:], 0.0)
        if left < NONE_LEFT:
            return max(age_s, UNKNOWN_S)
        for place in range(first, BINS):
            if left <= parts[place]:
                low_s = max(EDGES_S[place], age_s) if place else age_s
                return low_s + (EDGES_S[place + 1] - low_s) * left / parts[place] - age_s
            left -= parts[place]
        return EDGES_S[BINS] - age_s

    def outlasts(self, ended: Counts, unended: Mapping[int, float]) -> list[float]:
        """Which part of some of its jobs has more than each bin ends with: these count beside the law of all."""
        found, left = list[float](), 1.0
        for part in _mixed(self.parts, ended, unended):
            left -= part
            found.append(max(left, 0.0))
        return found

    def ends_before(self, number: int, other: Law, other_number: int, times: float) -> float:
        """The probability that a job that has had so much has less than so many times as much left as another."""
        return _ends_before(self, number, other, other_number, times)

    def ends_by(self, number: int) -> float:
        """The probability that a job ends before it has had as much as this bin begins with."""
        return sum(self.parts[:number], 0.0)

    def ends_within(self, number: int, rest_s: float) -> float:
        """The probability that a job that has had so much has less left than that."""
        first, age_s, parts = max(number, 0), _begin_s(number), self.parts
        found = sum([parts[place] for place in range(first, BINS) if MIDS_S[place] - age_s < rest_s])
        left = sum(parts[first:])
        return found / left if left > NONE_LEFT else UNKNOWN_PART


@lru_cache(maxsize=1 << 14)
def _ends_before(law: Law, number: int, other: Law, other_number: int, times: float) -> float:
    """Kept: laws and bins are few. Of 47,900 questions with 1,000 families on 1,000 GPUs 800 were new (2026-12-01)."""
    age_s, other_age_s, place, ended, found = _begin_s(number), _begin_s(other_number), max(number, 0), 0.0, 0.0
    parts, others, first, other_first = law.parts, other.parts, place, max(other_number, 0)
    for at in range(other_first, BINS):
        most_s = times * (MIDS_S[at] - other_age_s)
        while place < BINS and MIDS_S[place] - age_s < most_s:
            ended += parts[place]
            place += 1
        found += others[at] * ended
    # From 0.0: the compiler takes a sum from 0 for an int.
    both = sum(parts[first:], 0.0) * sum(others[other_first:], 0.0)
    return found / both if both > NONE_LEFT else UNKNOWN_PART


def _begin_s(number: int) -> float:
    return EDGES_S[number] if number >= 0 else 0.0


def _believed(cells: list[float]) -> Believed:
    medians, kinds = [0.0] * MEDIANS, [sum(cells[at : at + MEDIANS]) for at in range(0, CELLS, MEDIANS)]
    for at in range(CELLS):
        medians[at % MEDIANS] += cells[at]
    mean = sum([medians[at] * LOG_MEDIANS[at] for at in range(MEDIANS)])
    variance = sum([medians[at] * (LOG_MEDIANS[at] - mean) ** 2 for at in range(MEDIANS)])
    return Believed(mean, variance, kinds)


def _mean_law(grid: _Grid, cells: list[float], kinds: list[float], common: list[float]) -> list[float]:
    """The mean of all laws, each as it is likely."""
    count = len(SIGMAS)
    shared = sum([kinds[kind] * COMMON_PARTS[kind // count] for kind in range(KINDS)])
    laws, rows, found = count * MEDIANS, grid.parts, [shared * one for one in common]
    weights = [0.0] * laws
    for at in range(CELLS):
        weights[at % laws] += (1.0 - COMMON_PARTS[at // laws]) * cells[at]
    likely = [at for at in range(laws) if weights[at] > UNLIKELY]
    for place in range(BINS):
        one = found[place]
        for at in likely:
            one += weights[at] * rows[at][place]
        found[place] = one
    part = 1.0 / sum(found)
    return [part * one for one in found]


def _mixed(law: list[float], ended: Counts, unended: Mapping[int, float]) -> list[float]:
    """The same with the family's own jobs; those that have not ended are spread over what is beyond what they had."""
    if not ended and not unended:
        return law
    own, found = smoothed(ended), law
    waiting = [unended.get(place, 0.0) for place in range(BINS)]
    for _ in range(ROUNDS if unended else 1):
        beyond, left = [0.0] * BINS, 0.0
        for place in range(BINS - 1, -1, -1):
            left += found[place]
            beyond[place] = left
        spread, each = [0.0] * BINS, 0.0
        for place in range(BINS):
            if waiting[place]:
                each += waiting[place] / max(beyond[place], 1e-9)
            spread[place] = LAW_JOBS * law[place] + own[place] + found[place] * each
        part = 1.0 / sum(spread)
        found = [part * one for one in spread]
    return found
