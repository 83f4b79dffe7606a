"""How many GPUs a job is offered, of the numbers it can run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from colane.model.job import Job, JobSpec, NeedClass
from colane.scheduling.engine.contracts import Desk


class SizeBy(StrEnum):
    """Which of its sizes a job gets."""

    ASKED = "asked"
    """The one its owner would like best: it waits for that."""
    LARGEST = "largest"
    """The largest for which there is an offer now; others are made room from for the smallest alone."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """See the module.

    Attributes:
        size: Which of its sizes a job gets.
    """

    size: SizeBy = SizeBy.ASKED

    def sizes(self, _desk: Desk, job: Job) -> Iterable[JobSpec]:
        """See `Sizer`."""
        spec = job.effective
        if self.size is SizeBy.ASKED or not spec.sizes:
            return (spec,)
        return [spec.at(gpus) for gpus in reversed(spec.sizes)]

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        """See `Sizer`."""
        return asked.sizes[0] if asked.sizes and self.size is SizeBy.LARGEST else asked.gpus


AS_ASKED: Final = Sizing()
LARGEST: Final = Sizing(SizeBy.LARGEST)
