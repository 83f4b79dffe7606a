"""What happened in a simulated run: one row a job, and the cluster over time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from colane.model.job import Job, JobState

UNKNOWN = float("nan")


@dataclass(slots=True)
class Curve:
    """The cluster over time: at each change, GPUs that carry a job, GPUs' worth of use, jobs waiting and running."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    active_gpus: array[float] = field(default_factory=lambda: array("d"))
    utilized_gpus: array[float] = field(default_factory=lambda: array("d"))
    waiting: array[float] = field(default_factory=lambda: array("d"))
    running: array[float] = field(default_factory=lambda: array("d"))

    def add(self, at_s: float, active: int, utilized: float, waiting: int, running: int) -> None:
        """The cluster from `at_s` on; a second value for one moment replaces the first."""
        if self.at_s and self.at_s[-1] == at_s:
            for column in self.columns:
                column.pop()
        for column, value in zip(self.columns, (at_s, active, utilized, waiting, running), strict=True):
            column.append(value)

    @property
    def columns(self) -> tuple[array[float], ...]:
        """All columns."""
        return self.at_s, self.active_gpus, self.utilized_gpus, self.waiting, self.running


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job as it went."""

    job: Job
    gpu_s: float
    alone_s: float


@dataclass(slots=True)
class Ledger:
    """Rows of ended jobs in order of their end, jobs refused before the start, and the curve."""

    rows: list[JobRow] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    curve: Curve = field(default_factory=Curve)
    events: int = 0
    decisions: int = 0
    steps: int = 0
    interrupted: bool = False

    def ended(self, state: JobState) -> int:
        """How many jobs ended in a state."""
        return sum(row.job.state is state for row in self.rows)
