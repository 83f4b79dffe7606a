"""Measured tables as sources of speed: what each knows of a job, and None where it was not measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple, Protocol

from colane.lab.simulate.world import Running, Scope, Startup
from colane.lab.traces.readers.topo import STEPS as TOPOLOGY_STEPS
from colane.lab.traces.tables.measured import OVERHEAD, RAN_ON, MeasuredTable
from colane.lab.traces.tables.salus import SalusTable
from colane.lab.traces.tables.scaling import ScalingTable
from colane.lab.traces.tables.synergy import SynergyJob, SynergyTable
from colane.lab.traces.tables.topology import TopologyJob, TopologyTable
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId
from colane.model.profile import Memory, ProfileKey


class SpeedTable(Protocol):
    """What one source knows. Every answer is None where it was not measured."""

    name: str
    scope: Scope

    @property
    def gpu_types(self) -> Sequence[str]:
        """GPU types it has speeds of, in small letters."""

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


class SpeedsAlone:
    """What a table does not know that has speeds of jobs alone; one that knows more overrides it."""

    def slowdown(self, _me: Running, _other: Running) -> float | None:
        """Not known."""
        return None

    def demand(self, _job: TraceJob, _gpu_type: str) -> float | None:
        """Not known."""
        return None

    def memory(self, _job: TraceJob, _gpu_type: str) -> Memory | None:
        """Not known."""
        return None


@cache
def canonical(name: str) -> str:
    """A model's name without case, blanks and dashes: `ResNet-18` and `resnet18` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def type_in(gpu_type: str, measured: Sequence[str]) -> str | None:
    """The measured type that a GPU is of: its very name, else the longest that is part of it or that it is part of."""
    name = gpu_type.lower()
    alike = [kind for kind in measured if name and (kind in name or name in kind)]
    return name if name in measured else max(alike, key=len, default=None)


class TopologySpeeds(SpeedsAlone):
    """Solo and collocated times of the topology-aware scheduler (Amaral et al., SC 2017), by its simulator's model.

    A job is slowed only by neighbours on GPUs of its own sockets, by the worst of them, and never below its time alone
    there. (The reference never lets a time fall again once a neighbour has left; here it does.)
    """

    name = "SC 2017 solo and collocated times"
    scope = Scope.NODE
    gpu_types: Sequence[str] = ("p100",)

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

    def _solo_s(self, key: TopologyJob, *, one_socket: bool) -> float | None:
        solo_s = self._table.solo(key, one_socket=one_socket)
        return self._table.solo(key, one_socket=not one_socket) if solo_s is None else solo_s


def _topology_job(job: TraceJob) -> TopologyJob | None:
    return None if job.batch_size is None else TopologyJob(job.model, job.batch_size, job.spec.gpus)


class SalusSpeeds(SpeedsAlone):
    """Salus's step times and memory on a P100 (Yu and Chowdhury, MLSys 2020)."""

    name = "Salus's geometry"
    scope = Scope.GPU
    gpu_types: Sequence[str] = ("p100",)

    def __init__(self, table: SalusTable) -> None:
        self._table = table

    def knows(self, job: TraceJob) -> bool:
        """Whether its geometry was measured."""
        return job.spec.gpus == 1 and self._table.of(job.model, job.batch_size) is not None

    def alone(self, running: Running) -> float | None:
        """Measured on a P100 only."""
        found = self._table.of(running.job.model, running.job.batch_size)
        return None if found is None or "p100" not in running.gpu_type.lower() else 1 / found.step_s

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """P and E, taken to be the same on any GPU."""
        found = self._table.of(job.model, job.batch_size)
        return None if found is None else found.memory


class ScalingSpeeds(SpeedsAlone):
    """f(n) of F-scheduling (Seo, 2020). Its file was found by search, not measured."""

    name = "F-scheduling's f(n) (calibrated, not measured)"
    scope = Scope.GPU
    gpu_types: Sequence[str] = ("titan",)

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


class MeasuredSpeeds:
    """What a live cluster measured of its own jobs (`colane export`).

    A job goes at its own recorded speed on the GPU type it ran on, and at the mean of its kind on any other.
    """

    name = "what the live cluster measured"
    scope = Scope.GPU

    def __init__(self, table: MeasuredTable) -> None:
        self._table = table
        self._families = {(key.family, key.batch_size, key.gpus) for key in table.jobs}
        self.gpu_types: Sequence[str] = sorted({key.gpu_type for key in table.jobs})

    def knows(self, job: TraceJob) -> bool:
        """Whether some GPU type has its step time."""
        return (job.model, job.batch_size, job.spec.gpus) in self._families

    def alone(self, running: Running) -> float | None:
        """Measured on this GPU type."""
        job = running.job
        is_own = job.spec.labels.get(RAN_ON) == running.gpu_type and not job.is_timed
        if is_own and job.steps and job.duration_s:
            return job.steps / job.duration_s
        found = self._table.jobs.get(_profile_key(job, running.gpu_type))
        return None if found is None else 1 / found.step_s

    def slowdown(self, me: Running, other: Running) -> float | None:
        """Measured for this pair, else estimated from other pairs."""
        return self.slowdown_among(me, [other])

    def startup(self, job: TraceJob) -> Startup:
        """The job's own, else the mean of all; as much of it is work of its device as was of all."""
        own, known = job.spec.labels.get(OVERHEAD), self._table.overhead
        alone_s = known.alone_s if own is None else float(own)
        return Startup(alone_s, alone_s * known.work_ratio)

    def slowdown_among(self, me: Running, others: Sequence[Running]) -> float | None:
        """Measured for this very set, else estimated from those of its size."""
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
        """Whether its curve was measured, and either its cores are known or its speed is that of the curve."""
        return (job.spec.cores > 0 or job.duration_s is None) and self._key(job) in self._matrices

    def factor(self, job: TraceJob, cores: float | None = None) -> float:
        """Speed with so many cores / speed with three cores for each GPU; 1 where nothing is known.

        None is as many as it asks for, 0 as many as its duration was recorded with.
        """
        cores = float(job.spec.cores) if cores is None else cores
        matrix = self._matrices.get(self._key(job))
        if matrix is None or cores <= 0:
            return 1.0
        gpus, memory_bytes = job.spec.gpus, job.spec.host_memory_bytes
        step = matrix.memory_step(memory_bytes / gpus) if memory_bytes else -1
        return matrix.relative_speed(min(max(cores / gpus, 1.0), matrix.most_cores_per_gpu), step) or 1.0

    def of_use(self, job: TraceJob) -> float | None:
        """Fewest measured cores with which it goes as fast as with any, in all; None where it has no curve."""
        matrix = self._matrices.get(self._key(job))
        return None if matrix is None else float(matrix.best_cores_per_gpu * job.spec.gpus)

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


def somewhere(job: TraceJob, gpu_type: str, gpus: int | None = None, most: int | None = None) -> Running:
    """A job alone on GPUs of one socket of no particular node, as many as it asked for if not said.

    On several nodes if it is told how many GPUs a node has at most, and these are fewer.
    """
    count = job.spec.gpus if gpus is None else gpus
    each = count if most is None else min(count, most)
    gpus_there = tuple([GpuId(f"anywhere{n // each}", n % each) for n in range(count)])
    return Running(job, gpu_type, gpus_there, cores=job.spec.part(job.spec.cores, count))
