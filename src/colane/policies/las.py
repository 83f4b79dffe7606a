"""Least attained service in two queues (Tiresias: Gu et al., NSDI 2019, section 3, 2D-LAS discretised).

Attained service is GPUs times the time a job has run. Jobs below the threshold form the first queue, all others the
second; within a queue the first to come goes first. A waiting job takes the place of running ones that come after it
in this order; only preemptible ones are stopped. Run times need not be known. Nobody is promoted back for having
waited long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.policies.blocks.preemption import Rules, serve
from colane.policies.blocks.serving import Rank, newcomers_by_arrival, priority_of
from colane.policies.blocks.standing import Standing
from colane.policies.blocks.times import earlier_s


@dataclass(frozen=True, slots=True)
class LeastAttainedService:
    """See the module.

    Attributes:
        threshold_gpu_s: Attained service from which on a job is in the second queue.
    """

    name: str = "las"
    threshold_gpu_s: float = 18_000.0

    @property
    def spares_s(self) -> float:
        """A job is not stopped before it has run this long."""
        return 0.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, young ones first, stopping old ones for them."""
        draft = Draft(view)
        for pool in view.pools:
            serve(draft, pool, self._rules(draft, pool))
        return draft.plan()

    def _rules(self, draft: Draft, pool: str) -> Rules:
        kept, now_s = draft.view.derived(Standing).kept(draft.view, pool), draft.now_s

        def rank(job: Job) -> Rank:
            return priority_of(job.spec), float(kept.of(job, self._demotion_s) <= now_s), float(job.id)

        def until_s(job: Job) -> float:
            demotion_s = kept.of(job, self._demotion_s)
            return demotion_s if demotion_s > now_s else inf

        return Rules(
            rank=rank,
            lines=newcomers_by_arrival(draft, pool, rank),
            displaces=_displaces,
            quantum_s=0.0,
            because="it has had less service",
            turns_s=until_s,
        )

    def _demotion_s(self, job: Job) -> float:
        """When a job enters the second queue if it runs on; minus infinity if it is there, infinity if it waits."""
        left_gpu_s = self.threshold_gpu_s - job.spec.gpus * earlier_s(job)
        if left_gpu_s <= 0:
            return -inf
        running = job.placement is not None and job.start_s is not None
        return (job.start_s or 0.0) + left_gpu_s / job.spec.gpus if running else inf


def _displaces(waiting: Rank, running: Rank) -> bool:
    return waiting < running
