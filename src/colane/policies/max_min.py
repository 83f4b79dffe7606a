"""Max-min fair share over time (Gavel: Narayanan et al., OSDI 2020, section 4.1), alone or with packing.

Gavel gives every job an equal part of the cluster's time, capped by what it asks for, and serves in each round the jobs
with the largest fair share / time received. Here nobody waits for a round: free GPUs are given at once, to the job
with the smallest received / entitled, where entitled is its fair share now times its age. At each quantum a waiting
job takes the place of running ones that have had more; only preemptible ones are stopped. On several GPU types time
counts by normalised throughput, and each job prefers the type on which it is fastest compared with the others, in
place of Gavel's linear program. With packing, a job that finds no free GPU joins another one where the pair is
predicted to gain (Gavel, section 3.1); time on a shared GPU counts in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan, Start
from colane.policies.blocks.preemption import Place, Rules, serve
from colane.policies.blocks.rounds import round_end_s, round_start_s
from colane.policies.blocks.serving import Rank, priority_of, start_on_free
from colane.policies.blocks.shares import FairShares
from colane.policies.blocks.sharing import Pairs
from colane.policies.blocks.times import RunTimes, gpu_type_of


@dataclass(frozen=True, slots=True)
class MaxMinFairness:
    """See the module.

    Attributes:
        packed: Whether jobs may share a GPU in pairs.
        quantum_s: A job runs at least this long before it is stopped; Gavel's round.
        surplus_min: A running job's part must be more than this many times a waiting one's to be stopped.
        speedup_min: Two jobs share a GPU when their predicted speed-up is at least this.
    """

    is_preemptive: ClassVar[bool] = True
    name: str = "max-min"
    packed: bool = False
    quantum_s: float = 360.0
    surplus_min: float = 1.1
    speedup_min: float = 1.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, the one with the smallest part first, stopping those with more."""
        draft = Draft(view)
        for pool in view.pools:
            serve(draft, pool, self._rules(draft, pool))
        return draft.plan()

    def _rules(self, draft: Draft, pool: str) -> Rules:
        shares = FairShares(draft.view, pool, RunTimes(draft))
        level, round_s = shares.level, round_start_s(draft.now_s, self.quantum_s)
        next_s = round_end_s(draft.now_s, self.quantum_s)

        def rank(job: Job) -> Rank:
            age_s = max(self.quantum_s, round_s - job.submit_s)
            entitled_gpu_s = min(level, job.spec.gpus) * age_s
            received_gpu_s = shares.received_gpu_s(job, round_s, gpu_type_of(draft.view, job))
            return priority_of(job.spec), received_gpu_s / entitled_gpu_s if entitled_gpu_s else 0.0

        return Rules(
            rank,
            self._displaces,
            self._ripe_s,
            "it has had less of its fair share",
            lambda _: next_s,
            self._placer(draft, pool, shares),
        )

    def _placer(self, draft: Draft, pool: str, shares: FairShares) -> Place:
        pairs = Pairs(draft, pool, self.speedup_min)

        def place(draft: Draft, job: Job) -> bool:
            kinds = draft.view.gpu_types(pool, job.spec.gpu_type)
            roomy = [kind for kind in kinds if draft.free((pool, kind)).most_free >= job.spec.gpus]
            if not start_on_free(draft, job, shares.preferred(job.spec, roomy)):
                return self.packed and pairs.start(job)
            action = draft.actions[-1]
            if self.packed and isinstance(action, Start):
                pairs.note(action.placement.gpus[0])
            return True

        return place

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        return waiting[1] * self.surplus_min < running[1]

    def _ripe_s(self, job: Job) -> float:
        return inf if job.start_s is None else job.start_s + self.quantum_s
