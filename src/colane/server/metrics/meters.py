"""What the scheduler counts of its own work, since it was started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from colane.model.job import Job, JobId
from colane.server.metrics.text import Histogram


@dataclass(slots=True)
class Meters:
    """The counters.

    Attributes:
        decisions: What a turn's decisions took.
        commits: What commits took.
        ended: Jobs that have ended, by state.
        submitted: Jobs that were taken in.
        started: Attempts that were given a place.
    """

    decisions: Histogram = field(default_factory=Histogram)
    commits: Histogram = field(default_factory=Histogram)
    ended: Counter[str] = field(default_factory=Counter)
    submitted: int = 0
    started: int = 0

    def count(self, jobs: Iterable[Job], before: Mapping[JobId, Job]) -> None:
        """Count what a turn has brought: new values of jobs, and what was known of them before."""
        for job in jobs:
            old = before.get(job.id)
            self.submitted += old is None and job.element is None
            self.started += max(0, job.attempt - (0 if old is None else old.attempt))
            if job.has_ended:
                self.ended[job.state.value] += 1
