"""Measured tables as sources of speed: what each knows of a job, and None where it was not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import inf
from typing import NamedTuple, Protocol

from colane.model.hardware import GpuId
from colane.model.profile import Memory, ProfileKey
from colane.simulate.factors import demand_of_copies
from colane.simulate.fitting import fitting_memory
from colane.simulate.world import Running, Scope
from colane.traces.readers.topo import STEPS as TOPOLOGY_STEPS
from colane.traces.tables.gavel import GavelJob, GavelTable, Spot
from colane.traces.tables.measured import OVERHEAD, RAN_ON, MeasuredTable
from colane.traces.tables.salus import SalusTable
from colane.traces.tables.scaling import ScalingTable
from colane.traces.tables.synergy import SynergyJob, SynergyTable
from colane.traces.tables.topology import TopologyJob, TopologyTable
from colane.traces.workload import TraceJob


class SpeedTable(Protocol):
    """What one source knows. Every answer is None where it was not measured."""

    name: str
    scope: Scope

    def knows(self, job: TraceJob) -> bool:
        """Whether it can say anything of a job."""

    def alone(self, running: Running) -> float | None:
        """Steps per second alone."""

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Step time of `me` beside `other` / alone; infinite when both were measured not to fit together."""

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:
        """Part of a GPU it needs alone."""

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """P and E on each GPU."""


@cache
def canonical(name: str) -> str:
    """A model's name without case, blanks and dashes: `ResNet-18` and `resnet18` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class GavelSpeeds:
    """Gavel's throughputs (Narayanan et al., OSDI 2020).

    Demands and memory are derived, not measured: demand from the pair of two copies on a V100 (`factors`; the nearest
    batch size of the model where two copies do not fit), memory from which pairs fit (see `fitting_memory`).

    Args:
        tables: Alone speeds are taken from the first that has them; pairs from the first that has pairs.
    """

    name = "Gavel's throughputs"
    scope = Scope.GPU

    def __init__(self, *tables: GavelTable) -> None:
        self._tables = tables
        self._pairs = next((table for table in tables if table.pair_steps_per_s), GavelTable({}))
        self._models = {canonical(job.model): job.model for table in tables for _, job in table.alone_steps_per_s}
        self._types = sorted({spot.gpu_type for table in tables for spot, _ in table.alone_steps_per_s})
        self._demands = self._all_demands()
        self._memory = fitting_memory(self._pairs)

    def knows(self, job: TraceJob) -> bool:
        """Whether some GPU type has its speed."""
        return any(self._alone(self._key(job), kind) for kind in self._types)

    def alone(self, running: Running) -> float | None:
        """Measured speed with all GPUs on one server; of a job over several, that over servers where it was measured.

        Gavel measured every job on every type: 0, it does not fit, where only others have a speed.
        """
        kind = self._type(running.gpu_type)
        if kind is None:
            return None
        key = self._key(running.job)
        speed = self._alone(key, kind, consolidated=False) if running.parts else None
        speed = self._alone(key, kind) if speed is None else speed
        return 0.0 if speed is None and self.knows(running.job) else speed

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Measured for this pair; jobs with unequal GPUs as their one-GPU forms."""
        kind = self._type(me.gpu_type)
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
        """Derived from two copies on a V100."""
        key = self._key(job)
        return self._demands.get((key.model, key.batch_size))

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Derived from which pairs fit on a V100 of 16 GB."""
        key = self._key(job)
        found = self._memory.get((key.model, key.batch_size))
        return None if found is None else Memory(0, found)

    def _key(self, job: TraceJob) -> GavelJob:
        model = self._models.get(canonical(job.model), job.model)
        return GavelJob(model, job.batch_size, job.spec.gpus)

    def _type(self, gpu_type: str) -> str | None:
        return next((kind for kind in self._types if kind in gpu_type.lower()), None)

    def _alone(self, key: GavelJob, gpu_type: str, *, consolidated: bool = True) -> float | None:
        """None also where it was measured not to fit."""
        found = (table.alone(gpu_type, key, consolidated=consolidated) for table in self._tables)
        return next((speed for speed in found if speed), None)

    def _all_demands(self) -> dict[tuple[str, int | None], float]:
        measured: dict[tuple[str, int | None], float] = {}
        jobs = self._pairs.jobs(1)
        for job in jobs:
            alone, pair = self._pairs.alone("v100", job), self._pairs.together("v100", job, job)
            if alone and pair and pair[0]:
                measured[job.model, job.batch_size] = demand_of_copies(pair[0] / alone)
        return {(job.model, job.batch_size): demand for job in jobs if (demand := _nearest(measured, job)) is not None}


def _nearest(measured: Mapping[tuple[str, int | None], float], job: GavelJob) -> float | None:
    own = measured.get((job.model, job.batch_size))
    if own is not None:
        return own
    alike = [(batch or 0, demand) for (model, batch), demand in measured.items() if model == job.model]
    distances = [(abs(batch - (job.batch_size or 0)), demand) for batch, demand in alike]
    return min(distances)[1] if distances else None


class TopologySpeeds:
    """Solo and collocated times of the topology-aware scheduler (Amaral et al., SC 2017), by its simulator's model.

    A job is slowed only by neighbours on GPUs of its own sockets, by the worst of them, and never below its time alone
    there. (The reference never lets a time fall again once a neighbour has left; here it does.)
    """

    name = "SC 2017 solo and collocated times"
    scope = Scope.NODE

    def __init__(self, table: TopologyTable) -> None:
        self._table = table

    def knows(self, job: TraceJob) -> bool:
        """Whether its time alone was measured."""
        key = _topology_job(job)
        return key is not None and self._solo_s(key, one_socket=True) is not None

    def alone(self, running: Running) -> float | None:
        """Measured on P100, on one socket or across both; the other where only that exists."""
        key = _topology_job(running.job) if "p100" in running.gpu_type.lower() else None
        solo_s = None if key is None else self._solo_s(key, one_socket=len(running.sockets) == 1)
        return None if solo_s is None else TOPOLOGY_STEPS / solo_s

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Collocated time / time alone at the same place, on a common socket only."""
        if not set(me.sockets) & set(other.sockets):
            return 1.0
        mine, others = _topology_job(me.job), _topology_job(other.job)
        if mine is None or others is None:
            return None
        solo_s, beside_s = self._solo_s(mine, one_socket=len(me.sockets) == 1), self._table.next_to(mine, others)
        return None if solo_s is None or beside_s is None else max(1.0, beside_s / solo_s)

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Not measured."""
        return None

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Not measured."""
        return None

    def _solo_s(self, key: TopologyJob, *, one_socket: bool) -> float | None:
        solo_s = self._table.solo(key, one_socket=one_socket)
        return self._table.solo(key, one_socket=not one_socket) if solo_s is None else solo_s


def _topology_job(job: TraceJob) -> TopologyJob | None:
    return None if job.batch_size is None else TopologyJob(job.model, job.batch_size, job.spec.gpus)


class SalusSpeeds:
    """Salus's step times and memory on a P100 (Yu and Chowdhury, MLSys 2020)."""

    name = "Salus's geometry"
    scope = Scope.GPU

    def __init__(self, table: SalusTable) -> None:
        self._table = table

    def knows(self, job: TraceJob) -> bool:
        """Whether its geometry was measured."""
        return job.spec.gpus == 1 and self._table.of(job.model, job.batch_size) is not None

    def alone(self, running: Running) -> float | None:
        """Measured on a P100 only."""
        found = self._table.of(running.job.model, running.job.batch_size)
        return None if found is None or "p100" not in running.gpu_type.lower() else 1 / found.step_s

    def slowdown(self, me: Running, other: Running) -> float | None:  # noqa: ARG002
        """Not measured."""
        return None

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Not measured."""
        return None

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """P and E, taken to be the same on any GPU."""
        found = self._table.of(job.model, job.batch_size)
        return None if found is None else found.memory


class ScalingSpeeds:
    """f(n) of F-scheduling (Seo, 2020). Its file was found by search, not measured."""

    name = "F-scheduling's f(n) (calibrated, not measured)"
    scope = Scope.GPU

    def __init__(self, table: ScalingTable) -> None:
        self._table = table

    def knows(self, job: TraceJob) -> bool:
        """Whether it has a speed for so many GPUs."""
        return bool(self._table.speed(job.model, job.spec.gpus))

    def alone(self, running: Running) -> float | None:
        """Speed using all its GPUs; the table is of TITAN Xp."""
        if "titan" not in running.gpu_type.lower():
            return None
        return self._table.speed(running.job.model, len(running.gpus)) or None

    def slowdown(self, me: Running, other: Running) -> float | None:  # noqa: ARG002
        """Not known."""
        return None

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Not known."""
        return None

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Not known."""
        return None


class MeasuredSpeeds:
    """What a live cluster measured of its own jobs (`colane export`).

    A job goes at its own recorded speed on the GPU type it ran on, and at the mean of its kind on any other.
    """

    name = "what the live cluster measured"
    scope = Scope.GPU

    def __init__(self, table: MeasuredTable) -> None:
        self._table = table
        self._families = {(key.family, key.batch_size, key.gpus) for key in table.jobs}

    def knows(self, job: TraceJob) -> bool:
        """Whether some GPU type has its step time."""
        return (job.model, job.batch_size, job.spec.gpus) in self._families

    def alone(self, running: Running) -> float | None:
        """Measured on this GPU type."""
        job = running.job
        if job.steps and job.duration_s and job.spec.labels.get(RAN_ON) == running.gpu_type:
            return job.steps / job.duration_s
        if not job.steps and job.duration_s:
            return 1.0  # its work is counted in seconds: that its kind has steps elsewhere says nothing of this run
        found = self._table.jobs.get(_profile_key(job, running.gpu_type))
        return None if found is None else 1 / found.step_s

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Measured for this pair, else estimated from other pairs."""
        return self.slowdown_among(me, [other])

    def startup_s(self, job: TraceJob) -> float:
        """The job's own, else the mean of all."""
        own = job.spec.labels.get(OVERHEAD)
        return self._table.overhead_s if own is None else float(own)

    def slowdown_among(self, me: Running, others: Sequence[Running]) -> float | None:
        """Measured for this very company, else estimated from those of its size."""
        key, keys = _profile_key(me.job, me.gpu_type), [_profile_key(other.job, other.gpu_type) for other in others]
        found = self._table.slowdown(key, keys)
        return self._table.estimate(key, keys) if found is None else found

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:
        """Part of the GPU it was seen to keep busy."""
        found = self._table.jobs.get(_profile_key(job, gpu_type))
        return None if found is None else found.occupancy_ratio

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """P and E as measured."""
        found = self._table.jobs.get(_profile_key(job, gpu_type))
        return None if found is None else found.memory


def _profile_key(job: TraceJob, gpu_type: str) -> ProfileKey:
    return ProfileKey(job.model, job.batch_size, job.spec.gpus, gpu_type)


class SynergyCores:
    """Synergy's relative speeds by cores and host memory (Mohan et al., OSDI 2022): a factor on other tables' speeds.

    1 is the speed at three cores and 62.5 GB for each GPU. Cores beyond the measured range take its end; a job that
    books no host memory has ample.
    """

    name = "Synergy's speeds by cores"

    def __init__(self, table: SynergyTable) -> None:
        self._matrices = {SynergyJob(canonical(job.model), job.gpus): matrix for job, matrix in table.matrices.items()}

    def knows(self, job: TraceJob) -> bool:
        """Whether its curve was measured and its cores are known."""
        return job.spec.cores > 0 and self._key(job) in self._matrices

    def factor(self, job: TraceJob, cores: int | None = None) -> float:
        """Speed with so many cores / speed with three cores for each GPU; 1 where nothing is known.

        Args:
            job: What runs.
            cores: In all; None is as many as it asks for, 0 shares those near its GPUs.
        """
        cores = job.spec.cores if cores is None else cores
        matrix = self._matrices.get(self._key(job))
        if matrix is None or cores <= 0:
            return 1.0
        gpus, memory_bytes = job.spec.gpus, job.spec.host_memory_bytes
        step = matrix.memory_step(memory_bytes / gpus) if memory_bytes else -1
        return matrix.relative_speed(min(max(cores / gpus, 1.0), matrix.most_cores_per_gpu), step) or 1.0

    def step_s(self, job: TraceJob) -> float | None:
        """Step time at the fair share on a V100."""
        matrix = self._matrices.get(self._key(job))
        return matrix.step_s if matrix is not None and matrix.step_s > 0 else None

    def _key(self, job: TraceJob) -> SynergyJob:
        return SynergyJob(canonical(job.model), job.spec.gpus)


class Sources(NamedTuple):
    """All tables there are, best first."""

    speeds: tuple[SpeedTable, ...]
    cores: SynergyCores | None = None

    def of_use(self, jobs: Iterable[TraceJob], gpu_types: Sequence[str] = ()) -> Sources:
        """Only the tables that can say something of at least one of these jobs, on one of these GPU types if given."""
        kinds = {(job.model, job.batch_size, job.spec.gpus, job.spec.cores): job for job in jobs}.values()
        speeds = tuple(table for table in self.speeds if any(_speaks_of(table, job, gpu_types) for job in kinds))
        cores = self.cores if self.cores is not None and any(self.cores.knows(job) for job in kinds) else None
        return Sources(speeds, cores)


def _speaks_of(table: SpeedTable, job: TraceJob, gpu_types: Sequence[str]) -> bool:
    if not table.knows(job) or not gpu_types:
        return table.knows(job)
    places = (somewhere(job, kind) for kind in gpu_types)
    return any(table.alone(place) or table.memory(job, place.gpu_type) for place in places)


def somewhere(job: TraceJob, gpu_type: str, gpus: int | None = None) -> Running:
    """A job alone on GPUs of one socket of no particular node, as many as it asked for if not said."""
    count = job.spec.gpus if gpus is None else gpus
    return Running(
        job, gpu_type, tuple([GpuId("anywhere", n) for n in range(count)]), cores=job.spec.part(job.spec.cores, count)
    )
