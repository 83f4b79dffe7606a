"""Jobs that hold GPUs, by user; kept from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterable

from colane.core.cluster.derived import NodesMatterNot
from colane.model.job import Job, JobId


class Holders(NodesMatterNot):
    """See the module."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[JobId, Job]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        """See `DerivedOfJobs`."""
        if old is not None and old.placement is not None:
            jobs = self._by_user[old.spec.user]
            jobs.pop(old.id, None)
            if not jobs:
                del self._by_user[old.spec.user]
        if new is not None and new.placement is not None:
            self._by_user.setdefault(new.spec.user, {})[new.id] = new

    def of(self, user: str) -> Iterable[Job]:
        """Jobs of a user."""
        return self._by_user.get(user, {}).values()
