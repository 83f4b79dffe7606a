"""Live jobs whose deadline was promised, by pool: kept from one plan to the next."""

from __future__ import annotations

from math import inf

from colane.core.cluster.derived import NodesMatterNot
from colane.model.job import Job, JobId


class DeadlineJobs(NodesMatterNot):
    """They."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[JobId, Job]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other."""
        if new is not None and new.constraints.promised is not None:
            self._jobs.setdefault(new.spec.pool, {})[new.id] = new
        elif old is not None and old.constraints.promised is not None:
            self._jobs[old.spec.pool].pop(old.id, None)

    def all(self) -> list[Job]:
        """Those of all pools."""
        return [job for jobs in self._jobs.values() for job in jobs.values()]

    def of(self, pool: str) -> list[Job]:
        """Those of a pool, in order of their deadlines."""
        found = self._jobs.get(pool)
        return sorted(found.values(), key=_due) if found else []


def _due(job: Job) -> tuple[float, JobId]:
    due_s = job.due_s
    return inf if due_s is None else due_s, job.id
