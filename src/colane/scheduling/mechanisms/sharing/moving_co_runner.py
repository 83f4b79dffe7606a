"""Next to a job whose co-runner moves to another GPU, where both pairs are worth more than joining at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import launch_s
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, Order, SchedulingContext
from colane.scheduling.engine.live import LiveJobs, is_past_min_runtime
from colane.scheduling.engine.usual import BoundSourceDefaults
from colane.scheduling.mechanisms.sharing.co_runner_index import others
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, Victim
from colane.scheduling.mechanisms.sharing.sharing_places import fits_instead, made_for, may_share
from colane.scheduling.mechanisms.sharing.sharing_values import JOBS_PER_GPU_MAX, SharingValues


@dataclass(frozen=True, slots=True)
class ByMovingCoRunner:
    """Next to a job whose co-runner moves to another GPU, where that is worth more than joining at once.

    Attributes:
        jobs_per_gpu_max: Jobs on one GPU at most.
        moving_min: The sum of speeds must rise by so much more than by the best co-runners there are.
        looks_max: Exchanges looked at in one plan at most, for the jobs asked first; equal GPUs count once.
    """

    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX
    moving_min: float = 0.1
    looks_max: int = 4096

    def bind(self, context: SchedulingContext) -> BoundMovingCoRunner | None:
        return BoundMovingCoRunner(self, context) if self.jobs_per_gpu_max > 1 else None

    def min_runtime_before_preemption_s(self, order: Order) -> float:
        return order.quantum_s


class BoundMovingCoRunner(BoundSourceDefaults):
    """See `ByMovingCoRunner`."""

    def __init__(self, source: ByMovingCoRunner, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._context = context
        self._moving_min = source.moving_min
        self._looks_left = source.looks_max
        self._values = SharingValues(context.draft, context.pool, source.jobs_per_gpu_max - 1, context.queue)
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        if not may_share(spec) or job.home or made_for(self._draft, self._live, job) is not None:
            return
        for kind in self._draft.view.gpu_types_for(spec):
            best = self._best(job, spec, kind)
            if best is not None:
                yield self._candidate(job, best)

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        self._values.look()

    def may_help(self, classes: Classes) -> Classes:
        """None while no job may be started elsewhere."""
        return classes if self._may_move() else {}

    def _may_move(self) -> bool:
        may_move = self._looks_left > 0 and self._live.stoppable > 0
        return may_move and self._live.has_past_min_runtime(self._draft.now_s, self._context.queue.quantum_s)

    def _best(self, job: Job, spec: JobSpec, kind: str) -> _Exchange | None:
        best, least = None, self._moving_min
        number = self._values.number(job, spec, kind) if self._may_move() else None
        for victim in () if number is None else self._values.victims(kind):
            if victim.gain + MOST <= least or self._looks_left <= 0:
                break
            self._looks_left -= 1
            found = self._exchange(spec, number or 0, victim, least)
            if found is not None:
                best, least = found, found.value
        return best

    def _exchange(self, spec: JobSpec, number: int, victim: Victim, least: float) -> _Exchange | None:
        """If a job of that group leaves for where it fits best; None where that is worth no more than the least."""
        gpu_group, values = victim.gpu_group, self._values
        rest = others(gpu_group.members, victim.place)
        rise = values.rise(number, gpu_group.site, rest)
        if rise + victim.gain <= least:
            return None
        found = self._co_runner(spec, gpu_group, victim.place)
        if found is None:
            return None
        here, co_runner = found
        there = values.best_but(co_runner.effective, gpu_group.members[victim.place], gpu_group.site[0], here.id)
        if there is None or rise - values.loss(gpu_group, victim.place) + there.rise <= least:
            return None
        value = rise - values.loss(gpu_group, victim.place) + there.rise
        return _Exchange(value, values.ratio(gpu_group.site, number, rest), here, co_runner, there.load)

    def _co_runner(self, spec: JobSpec, gpu_group: GpuGroup, place: int) -> tuple[GpuLoad, Job] | None:
        """The first of a group that may be started elsewhere, so that a job of such needs may take its place."""
        draft = self._draft
        for gpu in gpu_group.gpus:
            load = draft.load(gpu)
            co_runner = draft.view.job(load.jobs[place])
            if is_past_min_runtime(draft, co_runner, self._context.queue.quantum_s) and fits_instead(
                draft, spec, load.without(co_runner.id), co_runner
            ):
                return load, co_runner
        return None

    def _candidate(self, job: Job, best: _Exchange) -> Candidate:
        co_runner, here, there = best.co_runner, best.here, best.there

        def accepted() -> None:
            facts: dict[str, str | int | float] = {"had": str(here.id), "gpu": str(there.id), "rise": best.value}
            self._draft.resize(co_runner, (there,), Reason(Why.MOVED, facts, there.jobs), for_job=job.id)

        return Candidate(
            (here,), Reason(Why.PREEMPTING, {}, (co_runner.id,)), waits_for=here.jobs, accepted=accepted, is_later=True,
            ratio=best.ratio, harm=best.ratio - best.value + self._moving_min, cost_s=launch_s(co_runner),
        )  # fmt: skip


class _Exchange(NamedTuple):
    """A co-runner goes there, and the newcomer takes its place here; by how much the sum of speeds rises."""

    value: float
    ratio: float
    here: GpuLoad
    co_runner: Job
    there: GpuLoad


MOST: Final = 1.0
"""The sum of speeds rises by no more than the newcomer's speed, which is 1 at most."""
