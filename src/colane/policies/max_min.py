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

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan, Start
from colane.policies.blocks.preemption import Place, Rules, serve
from colane.policies.blocks.rounds import round_end_s, round_start_s
from colane.policies.blocks.serving import Rank, newcomers_by_arrival, priority_of, start_on_free
from colane.policies.blocks.shares import FairShares, kept_times
from colane.policies.blocks.sharing import Pairs


@dataclass(frozen=True, slots=True)
class MaxMinFairness:
    """See the module.

    Attributes:
        packed: Whether jobs may share a GPU in pairs.
        quantum_s: A job runs at least this long before it is stopped; Gavel's round.
        surplus_min: A running job's part must be more than this many times a waiting one's to be stopped.
        speedup_min: Two jobs share a GPU when their predicted speed-up is at least this.
    """

    name: str = "max-min"
    packed: bool = False
    quantum_s: float = 360.0
    surplus_min: float = 1.1
    speedup_min: float = 1.0

    @property
    def spares_s(self) -> float:
        """A job is not stopped before it has run this long."""
        return self.quantum_s

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, the one with the smallest part first, stopping those with more."""
        draft = Draft(view)
        for pool in view.pools:
            serve(draft, pool, self._rules(draft, pool))
        return draft.plan()

    def _rules(self, draft: Draft, pool: str) -> Rules:
        shares = FairShares(draft.view, pool, kept_times(draft, pool))
        level, round_s = shares.level, round_start_s(draft.now_s, self.quantum_s)

        def rank(job: Job) -> Rank:
            if job.placement is None and not job.served:
                return priority_of(job.spec), 0.0
            age_s = max(self.quantum_s, round_s - job.submit_s)
            entitled_gpu_s = min(level, job.spec.gpus) * age_s
            received_gpu_s = shares.received_gpu_s(job, round_s)
            return priority_of(job.spec), received_gpu_s / entitled_gpu_s if entitled_gpu_s else 0.0

        return Rules(
            rank=rank,
            lines=newcomers_by_arrival(draft, pool, rank),
            displaces=self._displaces,
            quantum_s=self.quantum_s,
            because="it has had less of its fair share",
            until_s=round_end_s(draft.now_s, self.quantum_s),
            place=self._placer(draft, pool, shares),
            needs_free=not self.packed,
        )

    def _placer(self, draft: Draft, pool: str, shares: FairShares) -> Place:
        pairs = Pairs(draft, pool, self.speedup_min)

        def place(draft: Draft, job: Job) -> bool:
            kinds = draft.view.gpu_types(pool, job.spec.gpu_type)
            roomy = [kind for kind in kinds if draft.free((pool, kind)).most_free >= job.spec.gpus]
            types = kinds if job.spec.multi_node else roomy
            if not types or not start_on_free(draft, job, shares.preferred(job.spec, types)):
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
