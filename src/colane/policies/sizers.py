"""How many GPUs and cores a job is offered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from colane.model.job import Job, JobSpec
from colane.policies.parts import Desk


@dataclass(frozen=True, slots=True)
class AsAsked:
    """What its owner asked for."""

    def sizes(self, _desk: Desk, job: Job) -> Iterable[JobSpec]:
        """See `Sizer`."""
        return (job.spec,)


AS_ASKED: Final = AsAsked()
