"""What the scheduler counts of its own work, since it was started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from colane.model.job import Job, JobId


class Histogram:
    """How often what took how long.

    Args:
        bounds: Upper bounds of the buckets, ascending, in seconds.
    """

    def __init__(self, bounds: Iterable[float] = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)) -> None:
        self.bounds: Final = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.count = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one that took so long."""
        place = next((place for place, bound in enumerate(self.bounds) if seconds <= bound), len(self.bounds))
        self.counts[place] += 1
        self.count += 1
        self.total += seconds


@dataclass(slots=True)
class Meters:
    """The counters."""

    decisions: Histogram = field(default_factory=Histogram)  # what a turn's decisions took
    longest_decision_cpu_s: float = 0.0  # of those of one turn
    commits: Histogram = field(default_factory=Histogram)  # what commits took
    ended: Counter[str] = field(default_factory=Counter)  # jobs that have ended, by state
    submitted: int = 0  # jobs that were taken in
    started: int = 0  # attempts that were given a place

    def count(self, jobs: Iterable[Job], before: Mapping[JobId, Job]) -> None:
        """Count what a turn has brought: new values of jobs, and what was known of them before."""
        for job in jobs:
            old = before.get(job.id)
            self.submitted += old is None and job.element is None
            self.started += max(0, job.attempt - (0 if old is None else old.attempt))
            if job.has_ended:
                self.ended[job.state.value] += 1
