"""The world of measured tables: each job is moved by the first table that knows it, by `factors` where none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colane.lab.simulate.factors import FactorsWorld, slowdown_by_work, slowdown_of_several
from colane.lab.simulate.tables import MeasuredSpeeds, Sources, SpeedTable, somewhere, type_in
from colane.lab.simulate.world import NO_STARTUP, RecordedWork, Running, Scope, Startup, part_of_asked
from colane.lab.traces.tables.measured import RAN_ON
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory


class TableWorld(RecordedWork):
    """Speeds from tables.

    Alone: the first table that has the job on that GPU type, times Synergy's factor for its cores (durations were
    recorded with the cores that the job asked for); of a GPU type that no table has, a job without a duration goes as
    on the fastest type there is one for. Beside one other job on the same GPUs: the measured pair. Beside several, or
    an unmeasured pair: `factors`. Beside jobs on other GPUs of its sockets: the worst pair of a table that measured
    that. Tables come best first; those that know none of the jobs, or are of other GPU types, are left out. The base is
    for what no table knows. What runs may be learnt from where it counts steps.
    """

    def __init__(
        self,
        sources: Sources,
        jobs: Sequence[TraceJob] = (),
        base: FactorsWorld | None = None,
        gpu_types: Sequence[str] = (),
        *,
        counts_steps: bool = True,
    ) -> None:
        super().__init__(jobs)
        self.counts_steps = counts_steps
        used = sources.of_use(jobs, gpu_types) if jobs else sources
        self._speeds, self._cores = used
        self._measured = [table for table in self._speeds if isinstance(table, MeasuredSpeeds)]
        self._base = base or FactorsWorld()
        self.scope = Scope.NODE if any(table.scope is Scope.NODE for table in self._speeds) else Scope.GPU
        names = [table.name for table in self._speeds] + ([self._cores.name] if self._cores else [])
        self.name = f"table: {', '.join(names) or 'no table knows a job'}; elsewhere {self._base.name}"
        self._known: dict[Any, float] = {}
        self._speeds_somewhere: dict[Any, float | None] = {}
        self._types = gpu_types or sorted({kind for table in self._speeds for kind in table.gpu_types})
        kinds = {(job.model, job.batch_size): job for job in jobs if job.duration_s is not None}
        known = {kind for kind, job in kinds.items() if self._in_table(job) is not None}
        self.in_seconds = self.in_seconds - known
        self._memory: dict[Any, Memory | None] = {}
        self._demands: dict[Any, float] = {}

    @property
    def tables(self) -> Sequence[SpeedTable]:
        """Those of use, best first."""
        return self._speeds

    @property
    def knows_jobs(self) -> bool:
        """Whether any table knows any of the jobs."""
        return bool(self._speeds or self._cores)

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:
        """A job needs a duration, or steps and a measured speed on some GPU type it may get (see the class)."""
        if job.steps is None or job.duration_s is not None:
            return self._base.refusal(job, gpu_types)
        kinds = [kind for kind in gpu_types if job.spec.gpu_type in (None, kind)]
        speeds = [self._somewhere_steps_per_s(job, kind) for kind in kinds]
        if None not in speeds and any(speeds):
            return None
        return f"has no duration, and no table has the speed of {job.model} on {', '.join(kinds)}"

    def startup(self, job: TraceJob) -> Startup:
        """As a live cluster measured it; elsewhere durations have it in them."""
        return self._measured[0].startup(job) if self._measured else NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """By the first table that knows the job."""
        ranks = [(other, tuple(rank for rank, gpu in enumerate(me.gpus) if gpu in other.gpus)) for other in others]
        how = sorted((_kind(other), (len(shared), me.gpus == other.gpus, shared)) for other, shared in ranks)
        key = (_kind(me), tuple(how))
        speed = self._known.get(key)
        if speed is None:
            speed = self._known[key] = self._speed(me, others)
        return speed

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """As declared, else from the first table that has it."""
        declared = self._base.memory(job, gpu_type)
        if declared is not None:
            return declared
        key = (job.model, job.batch_size, job.spec.gpus, gpu_type)
        if key not in self._memory:
            found = (table.memory(job, gpu_type) for table in self._speeds)
            self._memory[key] = next((memory for memory in found if memory is not None), None)
        return self._memory[key]

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:
        """Its demand, as its cores let it work, at most 1."""
        return min(1.0, self._demand(job, gpu_type) * self._gain(job, cores))

    def cores_of_use(self, job: TraceJob) -> float | None:
        """As measured; None of a job without a curve."""
        return None if self._cores is None else self._cores.of_use(job)

    def _speed(self, me: Running, others: Sequence[Running]) -> float:
        job, alone = me.job, self._table_alone(me)
        if alone is None:
            alone = self.alone_steps_per_s(job) * self._gain(job, me.cores_had) * part_of_asked(me)
        elif job.is_timed and job.duration_s:
            alone *= self.alone_steps_per_s(job) / self.kind_steps_per_s(job)
        if not others:
            return alone
        sharing = [other for other in others if set(other.gpus) & set(me.gpus)]
        beside = [other for other in others if not set(other.gpus) & set(me.gpus)]
        slowdown = self._shared_slowdown(me, sharing) * self._neighbour_slowdown(me, beside)
        return 0.0 if slowdown == float("inf") else alone / slowdown

    def kind_steps_per_s(self, job: TraceJob) -> float:
        """By a table on the fastest GPUs it may use, else as its rows have it."""
        return self._in_table(job) or super().kind_steps_per_s(job)

    def _in_table(self, job: TraceJob) -> float | None:
        where = job.spec.labels.get(RAN_ON) or job.spec.gpu_type
        if not job.spec.gpus:
            return None
        speeds = [self._somewhere_steps_per_s(job, kind) for kind in ([where] if where else self._types)]
        return max([speed for speed in speeds if speed], default=None)

    def _somewhere_steps_per_s(self, job: TraceJob, gpu_type: str) -> float | None:
        """Speed alone by a table, of a job's kind."""
        needs = job.model, job.batch_size, job.spec.gpus, job.spec.cores, job.spec.host_memory_bytes
        key = (*needs, gpu_type, job.duration_s is None)
        if key not in self._speeds_somewhere:
            self._speeds_somewhere[key] = self._table_alone(somewhere(job, gpu_type))
        return self._speeds_somewhere[key]

    def _table_alone(self, me: Running) -> float | None:
        speed = next((s for table in self._speeds if (s := table.alone(me)) is not None), None)
        if speed is None and me.job.duration_s is None and me.gpus:
            speed = self._elsewhere(me)
        if speed is None and me.job.duration_s is None and self._cores is not None and "v100" in me.gpu_type.lower():
            step_s = self._cores.step_s(me.job)
            speed = None if step_s is None else 1 / step_s
        return speed if speed is None or self._cores is None else speed * self._cores.factor(me.job, me.cores_had)

    def _elsewhere(self, me: Running) -> float | None:
        """On the fastest type a table has, of those that do not have this one."""
        strange = [table for table in self._speeds if type_in(me.gpu_type, table.gpu_types) is None]
        places = (
            table.alone(Running(me.job, kind, me.gpus, me.sockets, me.sharing, me.parts, me.cores, "", me.shared_cores))
            for table in strange
            for kind in table.gpu_types
        )
        return max((speed for speed in places if speed), default=None)

    def _gain(self, job: TraceJob, cores: float) -> float:
        """Speed with so many cores / speed with as many as it asked for."""
        if self._cores is None or not cores or cores == job.spec.cores:
            return 1.0
        return self._cores.factor(job, cores) / self._cores.factor(job)

    def _shared_slowdown(self, me: Running, sharing: Sequence[Running]) -> float:
        if not sharing:
            return 1.0
        for table in self._measured if len(sharing) > 1 else []:  # for this very set of three or more
            whole = table.slowdown_among(me, sharing)
            if whole is not None:
                return whole
        pairs = [self._pair_slowdown(me, other) for other in sharing]
        if len(pairs) == 1:
            return pairs[0]
        by_gpu = (sum(self._demand(o.job, o.gpu_type) for o in sharing if gpu in o.gpus) for gpu in me.gpus)
        return slowdown_of_several(pairs, [self._demand(me.job, me.gpu_type), max(by_gpu)])

    def _pair_slowdown(self, me: Running, other: Running) -> float:
        on_gpu = (table for table in self._speeds if table.scope is Scope.GPU)
        found = next((s for table in on_gpu if (s := table.slowdown(me, other)) is not None), None)
        if found is not None:
            return found
        return slowdown_by_work([self._demand(me.job, me.gpu_type), self._demand(other.job, other.gpu_type)])

    def _neighbour_slowdown(self, me: Running, beside: Sequence[Running]) -> float:
        on_node = [table for table in self._speeds if table.scope is Scope.NODE]
        found = (table.slowdown(me, other) for table in on_node for other in beside)
        return max((slowdown for slowdown in found if slowdown is not None), default=1.0)

    def _demand(self, job: TraceJob, gpu_type: str) -> float:
        key = (job.model, job.batch_size, job.spec.gpus, gpu_type, job.gpu_ratio)
        demand = self._demands.get(key)
        if demand is None:
            found = (table.demand(job, gpu_type) for table in self._speeds)
            demand = next((one for one in found if one is not None), self._base.demand(job))
            self._demands[key] = demand
        return demand


def _kind(running: Running) -> tuple[Any, ...]:
    """All of a running job that a table may look at."""
    job, spec = running.job, running.job.spec
    speed = 0.0 if job.steps is None or not job.duration_s else job.steps / job.duration_s
    no_steps = job.steps is None
    needs = (spec.family, spec.batch_size or 0, spec.gpus, spec.cores, spec.host_memory_bytes, running.cores_had)
    place = running.gpu_type, len(running.gpus), running.sockets, bool(running.parts)
    return (*needs, *place, job.gpu_ratio, speed, no_steps, job.is_timed)
