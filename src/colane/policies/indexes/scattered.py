"""Jobs that run over several nodes and can be stopped, by pool; kept from one plan to the next."""

from __future__ import annotations

from typing import Final

from colane.core.derived import NodesMatterNot
from colane.model.job import Job, JobId, JobState

NOBODY: Final[set[JobId]] = set()


class ScatteredJobs(NodesMatterNot):
    """See the module. Those of which no two ranks may share a node are left out."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        """See `DerivedOfJobs`."""
        if old is not None and _is_scattered(old):
            self._pools[old.spec.pool].discard(old.id)
        if new is not None and _is_scattered(new):
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, NOBODY)


def _is_scattered(job: Job) -> bool:
    spec, placement = job.spec, job.placement
    if not spec.multi_node or spec.anti_collocation or not spec.preemptible or job.state is not JobState.RUNNING:
        return False
    return placement is not None and not job.home and not job.parked and len(placement.nodes) > 1
