"""Moving jobs that run: to GPUs, or to co-runners, where all together go faster, if that pays what moving costs.

A job that saves its state is stopped and started there; until it is gone its new place is booked for it. A move must
raise the sum of speeds by more than a margin, so that planning again at once changes nothing. Jobs of several GPUs, who
share no GPU, go to free GPUs of a faster type, or to better connected ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import is_untouched, launch_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec, JobState
from colane.model.reason import Reason, Why
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.expected import Expected
from colane.scheduling.engine.live import LiveJobs, is_past_min_runtime
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.sharing.groups import GpuGroup
from colane.scheduling.mechanisms.sharing.sharing_values import JOBS_PER_GPU_MAX, Joining, SharingValues
from colane.scheduling.mechanisms.topology.fastest import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.free_gpus import on_node


@dataclass(frozen=True, slots=True)
class Migration(UsualMoving):
    """See the module.

    Attributes:
        moves: Whether running jobs are moved at all.
        jobs_per_gpu_max: Jobs on one GPU at most.
        moves_rise_min: The sum of speeds must rise by so much, costs taken off.
        moves_max: In one plan at most.
    """

    moves: bool = True
    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX
    moves_rise_min: float = 0.1
    moves_max: int = 8

    def plan(self, context: SchedulingContext) -> None:
        """Move the jobs it pays to move, the most worthwhile first."""
        if not self.moves:
            return
        context.draft.plan_while_idle(context.pool)
        live = context.draft.view.derived(LiveJobs).pool(context.pool)
        if not live.stoppable or not live.has_past_min_runtime(context.draft.now_s, context.queue.quantum_s):
            return
        mover = _Migrator(self, context)
        for _ in range(self.moves_max):
            best = mover.best()
            if best is None:
                return
            mover.move(best)


MOST: Final = 1.0
"""The sum of speeds rises by no more than the newcomer's speed, which is 1 at most."""


class _Better(NamedTuple):
    """A better place for a job that runs, and by how much the sum of speeds rises, costs taken off."""

    rise: float
    left_s: float
    job: Job
    gpus: tuple[GpuLoad, ...]


def _worth(better: _Better) -> tuple[float, float, int]:
    return better.rise, better.left_s, -better.job.id


class _Migrator:
    def __init__(self, settings: Migration, context: SchedulingContext) -> None:
        self._settings = settings
        self._draft = context.draft
        self._pool = context.pool
        self._quantum_s = context.queue.quantum_s
        self._values = SharingValues(context.draft, context.pool, settings.jobs_per_gpu_max - 1, context.queue)
        self._fastest = BoundFastest(context)
        self._closed: set[GpuId] = set()
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._expected = Expected(context.draft, context.pool)

    def best(self) -> _Better | None:
        """The move that pays most."""
        best: _Better | None = None
        for better in (*self._of_one_gpu(), *self._of_several()):
            if best is None or _worth(better) > _worth(best):
                best = better
        return best

    def move(self, better: _Better) -> None:
        """Do so."""
        job, gpus = better.job, better.gpus
        had, beside = str(job.gpus_held[0]), gpus[0].jobs
        facts: dict[str, str | int | float] = {"had": had, "gpu": str(gpus[0].id), "rise": better.rise}
        self._closed |= {*[load.id for load in gpus], *job.gpus_held}
        self._draft.resize(job, gpus, Reason(Why.MOVED, facts, beside))
        self._values.look()

    # -- jobs of one GPU

    def _of_one_gpu(self) -> Iterator[_Better]:
        for gpu_type in self._draft.view.gpu_types(self._pool):
            for gpu_group in list(self._values.gpu_groups.present((self._pool, gpu_type))):
                for place in range(len(gpu_group.members) if gpu_group.gpus else 0):
                    loss = self._values.loss(gpu_group, place)
                    kinds = self._better_kinds(gpu_group.members[place], gpu_group, loss)
                    for job in self._movable(gpu_group, place) if kinds else ():
                        yield from self._better(job, kinds, loss)

    def _better_kinds(self, number: int, gpu_group: GpuGroup, loss: float) -> list[tuple[str, int]]:
        """GPU types on which a job may be better off, with its number there."""
        least, values, found = loss + self._settings.moves_rise_min, self._values, list[tuple[str, int]]()
        spec = values.gpu_groups.co_runners.specs[number]
        for gpu_type in self._draft.view.gpu_types_for(spec, self._pool) if least < MOST else ():
            there = number if gpu_type == gpu_group.kind[1] else values.elsewhere(number, gpu_type)
            is_free = self._draft.free((self._pool, gpu_type)).most_free > 0
            if values.top(there, gpu_type) > least or (is_free and self._alone(spec, gpu_type) > least):
                found.append((gpu_type, there))
        return found

    def _movable(self, gpu_group: GpuGroup, place: int) -> Iterator[Job]:
        """Those of a group that save their state and have run for a quantum."""
        for gpu in gpu_group.gpus:
            job = self._draft.view.job(self._draft.load(gpu).jobs[place])
            if (
                gpu not in self._closed
                and job.effective.gpus == 1
                and is_past_min_runtime(self._draft, job, self._quantum_s)
            ):
                yield job

    def _better(self, job: Job, kinds: Iterable[tuple[str, int]], loss: float) -> Iterator[_Better]:
        left_s = self._expected.rest_s(job)
        cost = self._cost(job, left_s)
        for gpu_type, number in kinds:
            for rise, load in self._places(job, gpu_type, number):
                if rise - loss - cost > self._settings.moves_rise_min:
                    yield _Better(rise - loss - cost, left_s, job, (load,))

    def _places(self, job: Job, gpu_type: str, number: int) -> Iterator[Joining]:
        """A free GPU of a type, and the best one it could join."""
        draft, spec = self._draft, job.effective
        for order in draft.free((self._pool, gpu_type)).nodes_with(1):
            gpus = on_node(draft, spec, gpu_type, draft.view.node_at(order), None)
            if gpus is not None:
                yield Joining(self._alone(spec, gpu_type), gpus[0])
                break
        best = self._values.best_but(spec, number, gpu_type, job.gpus_held[0])
        if best is not None and best.load.id not in self._closed:
            yield best

    def _alone(self, spec: JobSpec, gpu_type: str) -> float:
        return self._draft.beliefs.rate(spec, Situation(gpu_type, 1)).ratio

    # -- jobs of several

    def _of_several(self) -> Iterator[_Better]:
        """For jobs of several GPUs: free ones of each type."""
        for job_id in self._live.gangs_past_min_runtime(self._draft.now_s, self._quantum_s):
            job = self._draft.view.job(job_id)
            if job.state is not JobState.RUNNING or not job.effective.preemptible:
                continue
            if len(job.gpus_held) == job.effective.gpus and all(self._is_open(gpu) for gpu in job.gpus_held):
                yield from self._elsewhere(job)

    def _is_open(self, gpu: GpuId) -> bool:
        """Whether nothing was decided about a GPU, nor is about to happen there."""
        return gpu not in self._closed and is_untouched(self._draft, self._draft.load(gpu))

    def _elsewhere(self, job: Job) -> Iterator[_Better]:
        left_s = self._expected.rest_s(job)
        has = speed_on(self._draft, job.effective, [self._draft.load(gpu) for gpu in job.gpus_held])
        least = has + self._cost(job, left_s) + self._settings.moves_rise_min
        for candidate in self._fastest.candidates(job, job.effective) if least < MOST else ():
            if candidate.ratio > least:
                yield _Better(candidate.ratio - least + self._settings.moves_rise_min, left_s, job, candidate.gpus)

    @staticmethod
    def _cost(job: Job, left_s: float) -> float:
        """Part of what is left of it that a move would take."""
        return launch_s(job) / left_s if left_s > 0 else 1.0
