"""Live jobs of some kind, by pool; kept from one plan to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from colane.core.cluster.derived import NodesMatterNot
from colane.model.job import Job, JobId

NONE_CAME: Final[set[JobId]] = set()


class JobsOfKind(NodesMatterNot, ABC):
    """The jobs of which an index says that they belong to its kind, by what each is now."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    @abstractmethod
    def belongs(self, job: Job) -> bool:
        """Whether a job is of this kind: told by the job alone."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and self.belongs(old):
            self._pools[old.spec.pool].discard(old.id)
        if new is not None and self.belongs(new):
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, NONE_CAME)
