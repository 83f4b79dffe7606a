"""Sizes by value: a GPU goes where it raises the sum of speeds most, each speed weighed as the order weighs its job.

A job that has least left weighs most where the mean of completion times counts, one that has most left where the last
end counts. No job is kept from growing by others' speeds: fairness is the order's matter, and none falls below its
smallest size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from colane.model.job import Job
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.elastic.planned import PlannedSizes
from colane.scheduling.mechanisms.elastic.rebalancing import Rebalancing


@dataclass(frozen=True, slots=True)
class MostValueSizes(PlannedSizes):
    """See the module.

    Attributes:
        goodput: Whether a step counts by what it teaches (Pollux), where a job tells the noise of its gradient.
    """

    goodput: bool = True

    @property
    def by_goodput(self) -> bool:
        return self.goodput

    @property
    def by_loss(self) -> bool:
        return True

    @property
    def by_place(self) -> bool:
        return True

    def weight(self, context: SchedulingContext, job: Job, most_steps_per_s: float) -> float:
        return context.queue.weigh(job) / most_steps_per_s

    def speed(self, context: SchedulingContext, job: Job, gpus: int, *, spans: bool | None = None) -> float:
        """A part of that at the size it would like best."""
        whole = self.rate(context.draft, job, job.effective.gpus)
        return context.queue.weigh(job) * self.rate(context.draft, job, gpus, spans=spans) / whole if whole > 0 else 0.0


VALUE_SIZES: Final = MostValueSizes()


@dataclass(frozen=True, slots=True)
class Resizing(UsualMoving):
    """Running elastic jobs come to the sizes of most value, as `Rebalancing` does it.

    Attributes:
        sizes: How many GPUs each is to have.
        rise_ratio_min: Those of a node that change must be worth so much more together, as a part of what they are now.
        pays_back: Whether a job that grows must regain its restart in the time it has left.
    """

    sizes: MostValueSizes = VALUE_SIZES
    rise_ratio_min: float = 0.05
    pays_back: bool = True

    def plan(self, context: SchedulingContext) -> None:
        Rebalancing(self.sizes, 0.0, self.rise_ratio_min, self.pays_back).plan(context)
