"""Finish-time fairness (Themis: Mahajan et al., NSDI 2020).

Rho is a job's finish time here over its finish time alone on its part (1/N for N jobs) of the pool. The job that is
worst off, with the largest rho, goes first; a running one gives way once its lease is over and a waiting one is worse
off; only preemptible jobs are stopped. Themis lets jobs bid for GPUs in partial auctions; here rho is worked out from
believed run times, and nobody has to tell the truth about himself. A job of unknown length is taken to be half done.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.policies.blocks.preemption import Rules, serve
from colane.policies.blocks.rounds import round_end_s, round_start_s
from colane.policies.blocks.serving import Rank, each_ranked, priority_of
from colane.policies.blocks.shares import FairShares, kept_times
from colane.policies.blocks.times import gpu_type_of, kept_s


@dataclass(frozen=True, slots=True)
class FinishTimeFairness:
    """See the module.

    Attributes:
        lease_s: A job runs at least this long before it is stopped (Themis: 20 minutes).
        rho_gain_min: A waiting job's rho must be more than this many times a running one's to take its place.
    """

    name: str = "finish-time-fair"
    lease_s: float = 1200.0
    rho_gain_min: float = 1.1

    @property
    def spares_s(self) -> float:
        """A job is not stopped before it has run this long."""
        return self.lease_s

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, the worst off first, stopping those better off after their lease."""
        draft = Draft(view)
        for pool in view.pools:
            serve(draft, pool, self._rules(draft, pool))
        return draft.plan()

    def _rules(self, draft: Draft, pool: str) -> Rules:
        times = kept_times(draft, pool)
        shares = FairShares(draft.view, pool, times)
        part = shares.gpus / shares.jobs if shares.jobs else inf
        round_s = round_start_s(draft.now_s, self.lease_s)

        def rank(job: Job) -> Rank:
            total_s = times.run_s(job.spec, gpu_type_of(draft.view, job))
            return priority_of(job.spec), -self._rho(job, total_s, part, round_s)

        return Rules(
            rank=rank,
            lines=each_ranked(draft, rank),
            displaces=self._displaces,
            quantum_s=self.lease_s,
            because="it would finish later than its fair share allows",
            until_s=round_end_s(draft.now_s, self.lease_s),
        )

    def _rho(self, job: Job, total_s: float | None, part: float, now_s: float) -> float:
        done_s = kept_s(job, now_s)
        if total_s is None:
            total_s = max(self.lease_s, 2 * done_s)
        alone_s = total_s * max(1.0, job.spec.gpus / part if part else inf)
        shared_s = max(0.0, now_s - job.submit_s) + max(0.0, total_s - done_s)
        return shared_s / alone_s if alone_s else inf

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        return waiting[1] < running[1] * self.rho_gain_min
