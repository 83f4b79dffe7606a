"""How fast jobs truly run. A policy never sees a world: it learns from what the driver reports, as it would live.

Work is counted in steps. Where a workload records only durations, a step is one second of its recorded run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from colane.model.profile import Memory
from colane.traces.workload import TraceJob


class World(Protocol):
    """The truth about speed."""

    @property
    def name(self) -> str:
        """Name and source, as reports state it."""

    @property
    def counts_steps(self) -> bool:
        """Whether its steps are the jobs' own, so that they can be learnt from."""

    def work_steps(self, job: TraceJob) -> float:
        """Steps a job has to make."""

    def alone_steps_per_s(self, job: TraceJob, gpu_type: str) -> float:
        """Speed of a job with its GPUs to itself."""

    def shared_steps_per_s(self, company: Sequence[TraceJob], gpu_type: str) -> Sequence[float]:
        """Speeds of one-GPU jobs on one GPU, in their order; at least two jobs."""

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """P and E on each GPU; None where the world does not know."""

    def occupancy_ratio(self, job: TraceJob, gpu_type: str) -> float | None:
        """Part of a GPU the job keeps busy alone, 0..1; None where the world does not know."""


class NeutralWorld:
    """Durations as recorded, on any GPU; jobs that share a GPU share its time equally."""

    name = "neutral: durations as recorded, equal shares of a GPU"
    counts_steps = False

    def work_steps(self, job: TraceJob) -> float:
        """Recorded seconds."""
        if job.duration_s is None:
            raise ValueError(f"job {job.spec.name} (line {job.line}) has no duration; this world needs one")
        return job.duration_s

    def alone_steps_per_s(self, job: TraceJob, gpu_type: str) -> float:  # noqa: ARG002
        """One recorded second a second."""
        return 1.0

    def shared_steps_per_s(self, company: Sequence[TraceJob], gpu_type: str) -> Sequence[float]:  # noqa: ARG002
        """Equal shares."""
        return [1 / len(company)] * len(company)

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """As declared."""
        declared = job.spec.gpu_memory_bytes
        return None if declared is None else Memory(declared, 0)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Not known."""
        return None
