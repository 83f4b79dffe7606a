"""Pollux's step times by placement as a source of speed, and its validation curves as lengths of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from colane.lab.simulate.tables import SpeedsAlone
from colane.lab.simulate.world import Running, Scope
from colane.lab.traces.readers.pollux import BATCH_TOTAL
from colane.lab.traces.tables.pollux import Application, PolluxTable
from colane.lab.traces.workload import Note, TraceJob, Workload


class PolluxSpeeds(SpeedsAlone):
    """Step times by GPUs on each node and batch per GPU (Qiao et al., OSDI 2021); a job keeps its total batch.

    Args:
        table: As measured, on T4s.
    """

    name = "Pollux's step times (T4)"
    scope = Scope.GPU
    gpu_types: Sequence[str] = ("t4",)

    def __init__(self, table: PolluxTable) -> None:
        self._table = table

    def knows(self, job: TraceJob) -> bool:
        """Whether its application was measured and its batch is known."""
        return job.model in self._table.applications and batch_total(job) is not None

    def alone(self, running: Running) -> float | None:
        """Measured in this placement, else in the nearest one."""
        batch = batch_total(running.job)
        found = self._table.applications.get(running.job.model)
        if found is None or batch is None or "t4" not in running.gpu_type.lower():
            return None
        return 1 / found.step_s(tuple(Counter([gpu.node for gpu in running.gpus]).values()), batch)


def batch_total(job: TraceJob) -> int | None:
    """Samples of a step over all GPUs: as the workload says, else each GPU's times the GPUs it asks for."""
    said = job.spec.labels.get(BATCH_TOTAL)
    if said is not None and said.isdecimal():
        return int(said)
    return None if job.batch_size is None else job.batch_size * job.spec.gpus


def with_lengths(workload: Workload, table: PolluxTable) -> Workload:
    """Give jobs that say neither steps nor duration the iterations of their application's validation curves."""
    jobs = tuple(_with_length(job, table.applications.get(job.model)) for job in workload.jobs)
    given = sum(job is not before for job, before in zip(jobs, workload.jobs, strict=True))
    if not given:
        return workload
    note = Note(given, "job", "without a length given that of their application's validation curves")
    return replace(workload, jobs=jobs, notes=(*workload.notes, note))


def _with_length(job: TraceJob, application: Application | None) -> TraceJob:
    batch = batch_total(job)
    if application is None or batch is None or job.steps is not None or job.duration_s is not None:
        return job
    return replace(job, spec=replace(job.spec, steps_total=application.steps(batch)))
