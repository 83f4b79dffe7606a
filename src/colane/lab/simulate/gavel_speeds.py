"""Gavel's throughputs as a source of speed: of any GPU type, with pairs or without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from colane.lab.simulate.factors import demand_of_copies
from colane.lab.simulate.tables import SpeedsAlone, canonical, type_in
from colane.lab.simulate.world import Running, Scope
from colane.lab.traces.readers.lists import BATCH_TOTAL
from colane.lab.traces.tables.gavel import GavelJob, GavelTable, Spot
from colane.lab.traces.tables.pollux import Application, PolluxTable
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.model.profile import Memory


class PolluxSpeeds(SpeedsAlone):
    """Step times by GPUs on each node and batch per GPU (Qiao et al., OSDI 2021); a job keeps its total batch.

    As measured, on T4s.
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


V100_BYTES = 16_000_000_000  # memory of the V100 that Gavel measured on
CAPACITY_BYTES: Mapping[str, int] = {"v100": V100_BYTES, "p100": 16_000_000_000, "k80": 12_000_000_000}
"""Of the types that Gavel measured on, best first; of others a table does not say what fits."""


def measured_type(table: GavelTable) -> str:
    """The GPU type whose pairs say most: of Gavel's own the first that has pairs, else any; empty without pairs."""
    types = {spot.gpu_type for spot, _, _ in table.pair_steps_per_s if spot.consolidated}
    own = next((kind for kind in CAPACITY_BYTES if kind in types), None)
    return own or min(types, default="")


def fitting_memory(table: GavelTable) -> dict[tuple[str, int | None], int]:
    """Memory of each one-GPU job, derived from which pairs were measured to fit: no pair that did not is said to.

    Jobs of which two copies fit are put into the lower half of a GPU, by the number of partners they do not fit with; a
    job of which two copies do not fit takes just too much for the smallest partner it does not fit with. So a few pairs
    that did fit are said not to. Empty where the type the pairs were measured on has a capacity that is not known.
    """
    kind = measured_type(table)
    capacity_bytes = CAPACITY_BYTES.get(kind)
    if capacity_bytes is None:
        return {}
    jobs = table.jobs(1)
    unfit = {job: {other for other in jobs if not _fits(table, kind, job, other)} for job in jobs}
    small = [job for job in jobs if job not in unfit[job]]
    most = max((len(unfit[job]) for job in small), default=0)
    bytes_ = {job: round(capacity_bytes / 2 * (len(unfit[job]) + 0.5) / (most + 1)) for job in small}
    for job in jobs:
        if job not in bytes_:
            smallest = min((bytes_[other] for other in small if other in unfit[job]), default=capacity_bytes // 2)
            bytes_[job] = capacity_bytes - smallest + 1
    return {(job.model, job.batch_size): value for job, value in bytes_.items()}


def _fits(table: GavelTable, gpu_type: str, job: GavelJob, other: GavelJob) -> bool:
    spot = Spot(gpu_type, consolidated=True)
    values = (table.pair_steps_per_s.get((spot, *pair)) for pair in ((job, other), (other, job)))
    return (0.0, 0.0) not in values


class GavelSpeeds:
    """Gavel's throughputs (Narayanan et al., OSDI 2020).

    Demands and memory are derived, not measured: demand from the pair of two copies (`factors`; the nearest batch size
    of the model where two copies do not fit), memory from which pairs fit (see `fitting_memory`); both on a V100 where
    there are pairs of one, else on the first type that has pairs. Alone speeds are taken from the first table that has
    them; pairs from the first that has pairs.
    """

    name = "Gavel's throughputs"
    scope = Scope.GPU

    def __init__(self, *tables: GavelTable) -> None:
        self._tables = tables
        self._pairs = next((table for table in tables if table.pair_steps_per_s), GavelTable({}))
        self._models = {canonical(job.model): job.model for table in tables for _, job in table.alone_steps_per_s}
        self.gpu_types: Sequence[str] = sorted(
            {spot.gpu_type for table in tables for spot, _ in table.alone_steps_per_s}
        )
        self._pair_type = measured_type(self._pairs)
        self._counts = _counts(tables)
        self._demands = self._all_demands()
        self._memory = fitting_memory(self._pairs)

    def knows(self, job: TraceJob) -> bool:
        """Whether some GPU type has its speed."""
        return any(self._alone(self._key(job), kind) for kind in self.gpu_types)

    def alone(self, running: Running) -> float | None:
        """Measured speed with all GPUs on one server; of a job over several, that over servers where it was measured.

        A job of several sizes has that of the number it runs on: between two that were measured on a line between
        them. Gavel measured every job on every type: 0, it does not fit, where only others have a speed.
        """
        kind = type_in(running.gpu_type, self.gpu_types)
        if kind is None:
            return None
        key = self._key(running.job)
        if running.job.spec.sizes and len(running.gpus) != key.gpus:
            return self._resized(key, kind, len(running.gpus))
        speed = self._alone(key, kind, consolidated=False) if running.parts else None
        speed = self._alone(key, kind) if speed is None else speed
        return 0.0 if speed is None and self.knows(running.job) else speed

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Measured for this pair; jobs with unequal GPUs as their one-GPU forms."""
        kind = type_in(me.gpu_type, self.gpu_types)
        mine, others = self._key(me.job), self._key(other.job)
        if mine.gpus != others.gpus or me.gpus != other.gpus:
            mine, others = mine._replace(gpus=1), others._replace(gpus=1)
        alone = None if kind is None else self._alone(mine, kind)
        if not alone or kind is None:
            return None
        if self._pairs.pair_steps_per_s.get((Spot(kind, consolidated=True), mine, others)) == (0.0, 0.0):
            return inf
        pair = self._pairs.together(kind, mine, others)
        return None if pair is None or not pair[0] else max(1.0, alone / pair[0])

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Derived from two copies."""
        key = self._key(job)
        return self._demands.get((key.model, key.batch_size))

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Derived from which pairs fit."""
        key = self._key(job)
        found = self._memory.get((key.model, key.batch_size))
        return None if found is None else Memory.of_peak(found)

    def _key(self, job: TraceJob) -> GavelJob:
        model = self._models.get(canonical(job.model), job.model)
        return GavelJob(model, job.batch_size, job.spec.gpus)

    def _resized(self, key: GavelJob, gpu_type: str, count: int) -> float | None:
        """On a line between the counts that were measured; below the least in proportion, above the most no faster."""
        sizes = self._counts.get((key.model, key.batch_size), ())
        speeds = [(n, self._alone(key._replace(gpus=n), gpu_type)) for n in sizes]
        known = [(0, 0.0), *((n, speed) for n, speed in speeds if speed)]
        if len(known) == 1:
            return 0.0 if self.knows_model(key) else None
        below = max(point for point in known if point[0] <= count)
        above = min((point for point in known if point[0] >= count), default=below)
        if above[0] == below[0]:
            return below[1]
        part = (count - below[0]) / (above[0] - below[0])
        return below[1] + part * (above[1] - below[1])

    def knows_model(self, key: GavelJob) -> bool:
        """Whether some GPU type has a speed of the model with this batch size, on any number of GPUs."""
        return (key.model, key.batch_size) in self._counts

    def _alone(self, key: GavelJob, gpu_type: str, *, consolidated: bool = True) -> float | None:
        """None also where it was measured not to fit."""
        found = (table.alone(gpu_type, key, consolidated=consolidated) for table in self._tables)
        return next((speed for speed in found if speed), None)

    def _all_demands(self) -> dict[tuple[str, int | None], float]:
        measured: dict[tuple[str, int | None], float] = {}
        jobs = self._pairs.jobs(1)
        for job in jobs:
            alone, pair = self._pairs.alone(self._pair_type, job), self._pairs.together(self._pair_type, job, job)
            if alone and pair and pair[0]:
                measured[job.model, job.batch_size] = demand_of_copies(pair[0] / alone)
        return {(job.model, job.batch_size): demand for job in jobs if (demand := _nearest(measured, job)) is not None}


def _counts(tables: Sequence[GavelTable]) -> dict[tuple[str, int | None], tuple[int, ...]]:
    """Numbers of GPUs each model was measured on, ascending."""
    found: dict[tuple[str, int | None], set[int]] = {}
    for table in tables:
        for (_, job), speed in table.alone_steps_per_s.items():
            if speed:
                found.setdefault((job.model, job.batch_size), set()).add(job.gpus)
    return {kind: tuple(sorted(counts)) for kind, counts in found.items()}


def _nearest(measured: Mapping[tuple[str, int | None], float], job: GavelJob) -> float | None:
    own = measured.get((job.model, job.batch_size))
    if own is not None:
        return own
    alike = [(batch or 0, demand) for (model, batch), demand in measured.items() if model == job.model]
    distances = [(abs(batch - (job.batch_size or 0)), demand) for batch, demand in alike]
    return min(distances)[1] if distances else None
