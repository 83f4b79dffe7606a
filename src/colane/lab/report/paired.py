"""Two policies compared seed by seed: the interval of their differences, and no word where it holds 0.

Both policies had the same jobs under one seed, so what differs between seeds drops out of the difference: the interval
is far narrower than what two means with an interval each would tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from colane.lab.report.metrics import percent_change
from colane.lab.report.prose import duration, spoken
from colane.lab.report.simulated import confidence
from colane.model.words import count

SEEDS_MIN = 3
"""With fewer no interval is given: of two seeds it is 12.7 standard errors wide, and says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One metric of a policy against that of the baseline, over the seeds for which both have it.

    Attributes:
        seeds: How many.
        base_mean: The baseline's mean over these seeds.
        other_mean: The policy's.
        difference_mean: Mean of (policy - baseline) over seeds.
        half_width: Half of the 95 % interval of it (Student's t over seeds); None with fewer than `SEEDS_MIN`.
    """

    seeds: int
    base_mean: float
    other_mean: float
    difference_mean: float
    half_width: float | None

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.half_width is not None and abs(self.difference_mean) > self.half_width

    @property
    def change_percent(self) -> float | None:
        """Mean difference in percent of the baseline's mean; None where that is 0."""
        return percent_change(self.base_mean, self.other_mean)


def paired(base: Mapping[int, float | None], other: Mapping[int, float | None]) -> Paired | None:
    """Compare two policies by seed; None where no seed has a value of both."""
    pairs = [(a, b) for seed, value in sorted(base.items()) if _known(a := value) and _known(b := other.get(seed))]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not known:
        return None
    interval = confidence([b - a for a, b in known])
    if interval is None:
        return None
    return Paired(
        seeds=len(known),
        base_mean=sum(a for a, _ in known) / len(known),
        other_mean=sum(b for _, b in known) / len(known),
        difference_mean=interval.mean,
        half_width=interval.half_width if len(known) >= SEEDS_MIN else None,
    )


class EndCounts(NamedTuple):
    """What became of the jobs of a run: how many succeeded, and how many never ended."""

    finished: int
    unfinished: int
    jobs: int


def of_other_jobs(base: Mapping[int, EndCounts], other: Mapping[int, EndCounts]) -> tuple[EndCounts, EndCounts] | None:
    """Both ends of the first seed in which two policies did not finish the same jobs; their means tell nothing then."""
    for seed, one in base.items():
        two = other.get(seed, one)
        if one.finished != two.finished or one.unfinished or two.unfinished:
            return one, two
    return None


def nothing_claimed(base: str, other: str, ends: tuple[EndCounts, EndCounts], where: str = "") -> str:
    """Why nothing is said of a policy against another."""
    one, two = ends
    lost = " and ".join(
        f"{spoken(name)} finished {found.finished:,} of {count(f'{found.jobs:,}', 'job')}"
        + (f" ({found.unfinished:,} never ended)" if found.unfinished else "")
        for name, found in ((other, two), (base, one))
    )
    said = f"Nothing is claimed of {spoken(other)} against {spoken(base)}{where}"
    return f"{said}: {lost}, so means are not of the same jobs."


PARTS = frozenset({"gpu_active_ratio", "gpu_utilization_ratio", "fragmentation_ratio"})
"""Metrics that are a part of the cluster."""


def shown(metric: str, value: float | None) -> str:
    """A value of a metric for people: times in the unit that suits them, parts of the cluster in percent."""
    return f"{100 * value:.3g} %" if value is not None and metric in PARTS else _shown(metric, value)


def difference_shown(metric: str, value: float | None) -> str:
    """A difference of two values of a metric, or half of its interval: of parts in points of percent."""
    return f"{100 * value:.3g} points" if value is not None and metric in PARTS else _shown(metric, value)


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    if metric.endswith("_s"):
        return f"-{duration(-value)}" if value < 0 else duration(value)
    return f"{value:.3g}"


def _known(value: float | None) -> bool:
    return value is not None and isfinite(value)
