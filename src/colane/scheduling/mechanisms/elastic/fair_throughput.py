"""Sizes by throughput, fair by the variance of speeds (paper E, Listing 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from colane.model.job import Job
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.mechanisms.elastic.planned import PlannedSizes


@dataclass(frozen=True, slots=True)
class FairThroughput(PlannedSizes):
    """Sizes that make the sum of speeds large and their variance small."""

    # bound on the variance of speeds, each throughput over that with all GPUs there are. The paper's evaluation has
    # 0.5, which no variance of numbers in 0..1 reaches
    variance_max: float = 0.05
    # whether what a job gains counts in parts of what it reaches with all GPUs; else in steps per second, as in the
    # paper, which favours jobs with quick steps
    normalised: bool = False
    # whether a step counts by what it teaches (Pollux), where a job tells the noise of its gradient
    goodput: bool = False

    @property
    def by_goodput(self) -> bool:
        return self.goodput

    @property
    def variance_bound(self) -> float:
        return self.variance_max

    def weight(self, _context: SchedulingContext, _job: Job, most_steps_per_s: float) -> float:
        return 1 / most_steps_per_s if self.normalised else 1.0


USUAL_SIZES: Final = FairThroughput()
