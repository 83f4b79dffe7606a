"""Gavel's throughputs as a source of speed: of any GPU type, with pairs or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from colane.lab.simulate.factors import demand_of_copies
from colane.lab.simulate.fitting import fitting_memory, measured_type
from colane.lab.simulate.tables import canonical, type_in
from colane.lab.simulate.world import Running, Scope
from colane.lab.traces.tables.gavel import GavelJob, GavelTable, Spot
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory


class GavelSpeeds:
    """Gavel's throughputs (Narayanan et al., OSDI 2020).

    Demands and memory are derived, not measured: demand from the pair of two copies (`factors`; the nearest batch size
    of the model where two copies do not fit), memory from which pairs fit (see `fitting_memory`); both on a V100 where
    there are pairs of one, else on the first type that has pairs.

    Args:
        tables: Alone speeds are taken from the first that has them; pairs from the first that has pairs.
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
