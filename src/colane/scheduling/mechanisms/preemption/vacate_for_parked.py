"""Vacating for a parked job: the job on the only GPU it can go on moves to a free one.

A parked job is bound to its GPU: its memory can be restored nowhere else. So it may wait behind a long job while others
are free. The long job moves there, if it saves its state and what that costs it is well below what the other waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import is_untouched, stopped_s
from colane.model.job import Job
from colane.model.reason import Reason, Why
from colane.model.resources import host_needs
from colane.scheduling.engine.contracts import Candidate, SchedulingContext
from colane.scheduling.engine.live import LiveJobs, is_past_min_runtime, ran_since_s
from colane.scheduling.engine.times import Expected
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.engine.waiting import Waits
from colane.scheduling.mechanisms.topology.connected import BoundFastest, speed_on
from colane.scheduling.mechanisms.topology.consolidation import STOP_S
from colane.scheduling.mechanisms.topology.free import any_free

PAYS_RATIO: Final = 2.0
"""The parked job must go on sooner by so many times what the other loses: the lengths of both are estimates."""


@dataclass(frozen=True, slots=True)
class VacateForParked(UsualMoving):
    """Moves the job that lies where a parked one is to go on.

    Attributes:
        makes_way: Whether any job makes way.
        moves: Whether running jobs are moved at all.
    """

    makes_way: bool = True
    moves: bool = True

    def plan(self, context: SchedulingContext) -> None:
        """For each parked job of one GPU, the oldest first."""
        live = context.draft.view.derived(LiveJobs).pool(context.pool)
        if not self.makes_way or not self.moves or not live.homes or not any_free(context):
            return
        mover = _WayMaker(context)
        for _, job in sorted(live.returned.items()):
            if job.home and job.placement is not None and len(job.placement.slots) == 1:
                mover.make_way(job)


class _WayMaker:
    def __init__(self, context: SchedulingContext) -> None:
        self._draft = context.draft
        self._pool = context.pool
        self._quantum_s = context.queue.quantum_s
        self._fastest = BoundFastest(context)
        self._waits = Waits(context.draft, context.pool, context.queue)
        self._expected = Expected(context.draft, context.pool)

    def make_way(self, parked: Job) -> None:
        """Move the job that has a GPU of its home alone, where that pays."""
        if not self._draft.is_undecided(parked.id):
            return
        for load in self._draft.homes(parked):
            if len(load.bookings) == 1 and is_untouched(self._draft, load):
                job = self._draft.view.job(load.jobs[0])
                if self._pays(job) and self._has_room_without(parked, job):
                    candidate = self._elsewhere(job, load) if self._is_past_min_runtime(job) else None
                    if candidate is not None:
                        self._move(job, load, candidate, parked)
                        return

    def _pays(self, job: Job) -> bool:
        left_s = self._expected.rest_s(job)
        return left_s > PAYS_RATIO * (stopped_s(self._draft.view, job) + STOP_S)

    def _is_past_min_runtime(self, job: Job) -> bool:
        """Whether it may be moved now; else the question is asked again once it has run for a quantum."""
        min_runtime_until_s = ran_since_s(job) + self._quantum_s
        if min_runtime_until_s > self._draft.now_s:
            self._draft.plan_again(self._pool, min_runtime_until_s)
        return is_past_min_runtime(self._draft, job, self._quantum_s)

    def _has_room_without(self, parked: Job, victim: Job) -> bool:
        """Whether the parked job's node then has its cores and its bandwidth; its host memory it has."""
        if parked.placement is None:
            return False
        free = self._draft.host_free(self._draft.view.nodes[parked.placement.node])
        need = host_needs(parked.effective, 1) - host_needs(victim.effective, 1)
        return need.cores <= free.cores and need.host_bandwidth_bytes_per_s <= free.host_bandwidth_bytes_per_s

    def _elsewhere(self, job: Job, load: GpuLoad) -> Candidate | None:
        """A free GPU to which no job is bound, and on which it is as fast as where it is."""
        least = speed_on(self._draft, job.effective, [load])
        for candidate in self._fastest.candidates(job, job.effective):
            if candidate.ratio >= least and not self._waits.is_awaited(candidate.gpus[0].id, job):
                return candidate
        return None

    def _move(self, job: Job, load: GpuLoad, candidate: Candidate, parked: Job) -> None:
        facts: dict[str, str | int | float] = {"had": str(load.id), "gpu": str(candidate.gpus[0].id)}
        self._draft.resize(job, candidate.gpus, Reason(Why.VACATED, facts, (parked.id,)), for_job=parked.id)
