"""Take it or wait: a job declines to share if it, or a job there, ends earlier by waiting for a GPU of its own.

A job that can be stopped goes on elsewhere as soon as that pays. Any other ends where it began: sharing binds it, and
so does being parked. It is bound only where it is expected to end no later than if it waited until those that wait now
have had their turn, and then had a GPU to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import ceil, inf
from typing import Final

from colane.core.cluster.draft import Draft
from colane.model.hardware import GpuId
from colane.model.job import Job
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.live import LiveJobs

SHARED_MAX: Final = 2.0
"""What a GPU does with several jobs is believed to be no more than so many times what it does with one."""

SAMPLE_MAX: Final = 512
"""Of more live jobs every second, third, ... is looked at to tell what is left of all."""


def all_work(draft: Draft, pool: str, left_s: Callable[[Job], float]) -> Callable[[], float]:
    """In how many seconds the GPUs of a pool could do all that is left there, worked out when first asked for."""
    known: list[float] = []

    def drains_s() -> float:
        if not known:
            live = draft.view.derived(LiveJobs)
            jobs = live.pool(pool).jobs
            every = max(1, ceil(len(jobs) / SAMPLE_MAX))
            work_s = sum([left_s(job) * job.gpu_count for job in islice(jobs.values(), 0, None, every)], 0.0)
            known.append(every * work_s / (SHARED_MAX * max(1, live.usable_gpus(draft.view, pool))))
        return known[0]

    return drains_s


class Waits:
    """What waiting is worth to jobs of a pool in one plan, against an end at a slower speed or on a taken GPU.

    Args:
        draft: Where decisions are made.
        pool: Where.
        queue: Says what jobs have left, and how long a wait may take; without that no job declines.
    """

    def __init__(self, draft: Draft, pool: str, queue: BoundOrder | None) -> None:
        self._queue = queue
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

    def would_wait(self, job: Job, ratio: float, gpu: GpuId) -> bool:
        """Whether a job had better wait than come to a GPU: for its own end, or for that of a job parked there."""
        if self._queue is None or self._queue.drains_s is None or job.effective.preemptible:
            return False
        return self.delays(job, ratio) or (self.is_awaited(gpu, job) and self._stay_s(job, ratio) > self._drains_s)

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
