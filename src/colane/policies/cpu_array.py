"""Who places jobs without GPUs: the core, beside every policy, or the CPU array of CODA (paper D, section V)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from colane.core.config import CoreConfig
from colane.core.cpu_only import CpuOnlyPlacer
from colane.core.draft import Draft
from colane.core.state import NodeState
from colane.model.job import Job
from colane.policies.indexes.arrays import ArrayDemand
from colane.policies.sources.arrays import ABORTS_MAX, may_borrow


class CpuPlacing(Protocol):
    """How a composition places jobs without GPUs."""

    def place(self, draft: Draft, pool: str) -> None:
        """Start those for which there is room, after the pool's other jobs were served."""


@dataclass(frozen=True, slots=True)
class BesidePolicy:
    """The policy knows nothing of them: they are placed after it was asked (`core.cpu_only`)."""

    def place(self, draft: Draft, pool: str) -> None:
        """See `CpuPlacing`."""


@dataclass(frozen=True, slots=True)
class CpuArray:
    """Cores that are not kept for jobs with GPUs first; then idle ones of these, by jobs that may be aborted.

    Attributes:
        aborts_max: A job is aborted for others so often at most; then it borrows no more.
    """

    aborts_max: int = ABORTS_MAX

    def place(self, draft: Draft, pool: str) -> None:
        """See `CpuPlacing`."""
        draft.serves_cpu_only = True
        classes = draft.view.queue(pool).cpu_only
        if classes:
            ArrayPlacer(draft, pool, self.aborts_max).place(classes)


class ArrayPlacer(CpuOnlyPlacer):
    """See `CpuArray`."""

    def __init__(self, draft: Draft, pool: str, aborts_max: int) -> None:
        super().__init__(draft, pool, CoreConfig().cpu_only_passes_s)
        self._demand = draft.view.derived(ArrayDemand)
        self._aborts_max = aborts_max
        self._borrows = False

    def node_for(self, job: Job) -> NodeState | None:
        """See `CpuOnlyPlacer`."""
        self._borrows = False
        own = super().node_for(job)
        if own is not None or not may_borrow(job, self._aborts_max):
            return own
        self._borrows = True
        return super().node_for(job)

    def may_take(self, node: NodeState, job: Job) -> bool:
        """See `CpuOnlyPlacer`."""
        if self._borrows:
            return True
        own = len(node.node.cores) - self._demand.kept_cores(self._draft.view, node)
        return self._draft.cpu_only_taken(node).cores + job.spec.cores <= own
