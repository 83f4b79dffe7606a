"""Take it or wait: a job declines to share if it, or a job there, ends earlier by waiting for a GPU of its own.

A job that can be stopped goes on elsewhere as soon as that pays. Any other ends where it began: sharing binds it, and
so does being parked. It is bound only where it is expected to end no later than if it waited until those that wait now
have had their turn, and then had a GPU to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import distance_of, situation_alone, situation_in
from colane.facts.ran import present_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobSpec
from colane.model.progress import PAST_END_MIN_S, stall
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.live import LiveJobs

SHARED_MAX: Final = 2.0
"""What a GPU does with several jobs is believed to be no more than so many times what it does with one."""


class Waits:
    """What waiting is worth to jobs of a pool in one plan, against an end at a slower speed or on a taken GPU.

    Args:
        draft: Where decisions are made.
        pool: Where.
        queue: Says what jobs have left, and how long a wait may take; without that no job declines.
    """

    def __init__(self, draft: Draft, pool: str, queue: BoundOrder | None) -> None:
        self._queue = queue
        self._now_s = draft.now_s
        self._live = draft.view.derived(LiveJobs).pool(pool)
        self._parked: dict[str, int] | None = None
        self.is_asked = queue is not None and (queue.soonest_end_s is not None or queue.drains_s is not None)

    def delays(self, job: Job, ratio: float) -> bool:
        """Whether a job at such a speed ends too late: after all could have ended, or, bound, later than by waiting."""
        queue = self._queue
        if queue is None:
            return False
        if queue.soonest_end_s is not None:
            return (queue.left_s(job) or 0.0) > queue.soonest_end_s() * ratio
        if queue.drains_s is None or job.effective.preemptible:
            return False
        left_s = queue.left_s(job) or 0.0
        return left_s > ratio * (left_s + queue.drains_s())

    def is_cut_off(self, job: Job, ratio: float) -> bool:
        """Whether its time limit would end a job at such a speed that ends before it alone."""
        limit_s = job.effective.time_limit_s
        left_s = None if limit_s is None or self._queue is None else self._queue.left_s(job)
        if limit_s is None or left_s is None:
            return False
        may_run_s = limit_s - present_s(job, self._now_s)
        return left_s < may_run_s < self._stay_s(job, ratio)

    def would_wait(self, job: Job, ratio: float, gpu: GpuId) -> bool:
        """Whether a job had better wait than come to a GPU: for its own end, or for that of a job parked there."""
        if self.is_cut_off(job, ratio) or self.would_rather_wait(job, ratio):
            return True
        if self._queue is None or self._queue.drains_s is None or job.effective.preemptible:
            return False
        return self.is_awaited(gpu, job) and self._stay_s(job, ratio) > self._drains_s

    def would_rather_wait(self, job: Job, ratio: float) -> bool:
        """Whether a job ends sooner by waiting than at such a speed, wherever that is."""
        if self._queue is None or self._queue.drains_s is None or job.effective.preemptible:
            return False
        return self.delays(job, ratio)

    def is_awaited(self, gpu: GpuId, by_newcomer: Job) -> bool:
        """Whether a parked job, no less urgent than a newcomer, can go on nowhere else."""
        return bool(self._live.homes) and self._priorities.get(str(gpu), -inf) >= by_newcomer.spec.priority

    @property
    def _priorities(self) -> dict[str, int]:
        """Highest priority of parked jobs, by where they go on."""
        if self._parked is None:
            self._parked = {}
            for job in self._live.returned.values():
                if job.home:
                    self._parked[job.home] = max(job.spec.priority, self._parked.get(job.home, job.spec.priority))
        return self._parked

    def outstays(self, job: Job) -> bool:
        """Whether a job as urgent is parked, and would rather wait for one that can be stopped than for this job."""
        if not self._live.homes or self._queue is None or self._queue.drains_s is None or job.effective.preemptible:
            return False
        if job.home or max(self._priorities.values(), default=-inf) < job.spec.priority:
            return False
        return self._stay_s(job, 1.0) > self._drains_s

    def keeps_place(self, victim: Job, job: Job, ratio: float = 1.0) -> bool:
        """Whether a job that would be bound where it is parked keeps its place: one of its priority would run long."""
        queue = self._queue
        if queue is None or queue.drains_s is None or victim.effective.preemptible:
            return False
        is_equal = victim.spec.priority == job.spec.priority
        return is_equal and self._stay_s(job, ratio) > self._drains_s

    @property
    def _drains_s(self) -> float:
        return inf if self._queue is None or self._queue.drains_s is None else self._queue.drains_s()

    def _stay_s(self, job: Job, ratio: float) -> float:
        """How long a job would be there."""
        left_s = 0.0 if self._queue is None else self._queue.left_s(job) or 0.0
        return left_s / ratio if ratio > 0 else inf


# -- what falls free by itself

NODES_MAX: Final = 512  # of more nodes every second, third, ... is looked at

Ends = list[tuple[float, GpuLoad]]  # GPUs, and in how many seconds each falls free


class _Wanted(NamedTuple):
    """What makes an opening a place for a job: when, on which types, how fast it would be, how far apart its ranks."""

    within_s: float
    kinds: list[str]
    speed: float = 0.0
    distance: float = inf


class Openings:
    """Places that fall free by themselves, when the jobs there are expected to end; for one plan.

    Taking another job's place only moves the wait to that job where both would have had a place soon: of two jobs and
    a place that falls free before the first could be through, one waits for it, whichever that is. Stopping costs its
    time and brings nothing then. It brings something where others wait too, which then come sooner. For a gang only
    whole places count, on which it is as fast and whose GPUs lie as close together as those it could have at once.

    Args:
        draft: Where decisions are made.
        pool: Where.
        queue: Says what jobs have left, and whether they wait at all.
    """

    def __init__(self, draft: Draft, pool: str, queue: BoundOrder) -> None:
        self._draft = draft
        self._pool = pool
        self._queue = queue
        self._ends: dict[str, Ends] = {}

    def suffice(self, job: Job, spec: JobSpec, there: Sequence[GpuLoad]) -> bool:
        """Whether, before a job would be through, as many places for such jobs fall free as such jobs wait.

        Args:
            job: The waiting job.
            spec: As large as it would be.
            there: GPUs it could have at once; others count where it is as fast, and they lie as close together.
        """
        queue, view = self._queue, self._draft.view
        within_s = queue.left_s(job) if queue.awaits else None
        lacking = view.queue(self._pool).count
        if within_s is None or lacking > view.derived(LiveJobs).usable_gpus(view, self._pool):
            return False
        wanted = self._wanted(spec, there, within_s)
        for node in self._nodes():
            lacking -= self._single(node, wanted) if spec.gpus == 1 else self._whole(node, spec, wanted)
            if lacking <= 0:
                return True
        return False

    def _wanted(self, spec: JobSpec, there: Sequence[GpuLoad], within_s: float) -> _Wanted:
        if spec.gpus == 1:
            return _Wanted(within_s, self._as_fast(spec, there[0].gpu.type))
        kinds = self._draft.view.gpu_types_for(spec)
        distance = self._distance(there)
        return _Wanted(within_s, kinds, self._speed(spec, there, distance), distance)

    def _single(self, node: NodeState, wanted: _Wanted) -> int:
        """GPUs of a node that fall free soon enough."""
        within_s, kinds = wanted.within_s, wanted.kinds
        return sum([end_s <= within_s and load.gpu.type in kinds for end_s, load in self.of(node)])

    def _whole(self, node: NodeState, spec: JobSpec, wanted: _Wanted) -> int:
        """Places of a node for a gang, each of GPUs that fall free at once: others take those that do one by one."""
        together: dict[tuple[JobId, ...], list[GpuLoad]] = {}
        for end_s, load in self.of(node):
            if end_s <= wanted.within_s and load.gpu.type in wanted.kinds:
                together.setdefault(load.jobs, []).append(load)
        count = 0
        for loads in together.values():
            places = [loads[at : at + spec.gpus] for at in range(0, len(loads) - spec.gpus + 1, spec.gpus)]
            count += sum([self._is_as_good(spec, place, wanted) for place in places])
        return count

    def _is_as_good(self, spec: JobSpec, place: Sequence[GpuLoad], wanted: _Wanted) -> bool:
        distance = self._distance(place)
        return distance <= wanted.distance and self._speed(spec, place, distance) >= wanted.speed

    def _distance(self, place: Sequence[GpuLoad]) -> float:
        return distance_of(self._draft.view.nodes, [load.id for load in place])

    def _speed(self, spec: JobSpec, place: Sequence[GpuLoad], distance: float) -> float:
        return self._draft.beliefs.rate(spec, situation_alone(place, distance=distance)).ratio

    def _as_fast(self, spec: JobSpec, gpu_type: str) -> list[str]:
        """GPU types on which a job is no slower than on that one."""
        kinds = self._draft.view.gpu_types_for(spec)
        ratios = {kind: self._draft.beliefs.rate(spec, Situation(kind, spec.gpus)).ratio for kind in kinds}
        return [kind for kind in kinds if ratios[kind] >= ratios.get(gpu_type, inf)]

    def _nodes(self) -> list[NodeState]:
        """Of the pool, evenly spread where there are many."""
        nodes = [node for node in self._draft.view.nodes.values() if node.node.pool == self._pool]
        return nodes[:: max(1, ceil(len(nodes) / NODES_MAX))]

    def of(self, node: NodeState) -> Ends:
        """When the GPUs of a node fall free."""
        found = self._ends.get(node.node.name)
        if found is None:
            loads = [self._draft.load(GpuId(node.node.name, gpu.index)) for gpu in node.node.gpus]
            found = self._ends[node.node.name] = [(self._end_s(load), load) for load in loads]
        return found

    def _end_s(self, load: GpuLoad) -> float:
        """When all jobs on a GPU are through; never where it is kept, or a job leaves it for another."""
        draft, jobs = self._draft, self._draft.view.jobs
        if not load.is_usable or load.returning or load.id in draft.held:
            return inf
        ends_s = [0.0]
        for booking in load.bookings:
            job = jobs[booking.job]
            ends = job.spec.kind is not JobKind.INFERENCE and not job.is_leaving and draft.is_undecided(job.id)
            left_s = self._queue.left_s(job) if ends else None
            if left_s is not None and self._is_past_end(job, left_s):
                left_s = None
            ratio = draft.beliefs.rate(job.effective, situation_in(load, job.id, jobs)).ratio
            ends_s.append(inf if left_s is None or ratio <= 0 else left_s / ratio)
        return max(ends_s)

    def _is_past_end(self, job: Job, left_s: float) -> bool:
        """Whether a job should have ended long ago: it may hang, and its end is as good as unknown.

        One that tells of its steps is judged by its last one: since then it could have made all that are left.
        """
        sample = self._draft.view.progress(job.id)
        if sample is None or sample.last_step_s is None:
            return left_s <= 0.0 and self._queue.is_past_end(job)
        if sample.at_s < sample.last_step_s + left_s + PAST_END_MIN_S:
            return False
        stalled = stall(sample, job.submit_s if job.since_s is None else job.since_s)
        return stalled is not None and stalled.no_step_s >= left_s + PAST_END_MIN_S
