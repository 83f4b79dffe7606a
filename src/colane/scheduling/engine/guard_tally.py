"""Where a driver asks how often guards of a policy decide: ageing, hysteresis, sparing jobs that have hardly begun.

Published policies have none of them, or others, so a comparison has to tell what acted. Nothing is decided by it.
"""

from __future__ import annotations

from typing import Protocol

from colane.core.cluster.derived import NodesMatterNot
from colane.model.job import Job
from colane.scheduling.engine.contracts import SchedulingContext


class GuardWatch(Protocol):
    """Is told what guards may have decided."""

    def keeps(self, context: SchedulingContext, job: Job) -> None:
        """GPUs are kept for an overdue job."""

    def asks_urgent(self, context: SchedulingContext, job: Job) -> bool:
        """Whether an overdue job that is about to be served is so as it is overdue."""

    def serves_urgent(self, job: Job) -> None:
        """Such a job was served."""

    def waits(self, context: SchedulingContext) -> None:
        """The line was walked, and jobs are left waiting."""


class GuardTally(NodesMatterNot):
    """See the module.

    Attributes:
        watch: Is told; None where nothing asks.
    """

    def __init__(self) -> None:
        self.watch: GuardWatch | None = None
