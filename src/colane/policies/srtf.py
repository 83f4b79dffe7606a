"""Shortest remaining time first, preemptive.

A waiting job takes the place of a running one whose remaining time is at least `gain_min` times its own, once that one
has run for `quantum_s`; only preemptible jobs are stopped. Remaining time is steps times believed step time, else the
time limit, less the time run; unknown is infinite. Salus's SRTF (Yu and Chowdhury, section 3.4) and the classic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.policies.blocks.lengths import by_remaining
from colane.policies.blocks.preemption import Rules, serve
from colane.policies.blocks.serving import Rank, priority_of
from colane.policies.blocks.shares import kept_times
from colane.policies.blocks.standing import Standing
from colane.policies.blocks.times import gpu_type_of, kept_s


@dataclass(frozen=True, slots=True)
class ShortestRemainingTimeFirst:
    """See the module.

    Attributes:
        gain_min: A running job's remaining time must be more than this many times a waiting one's to be stopped.
        quantum_s: A job is not stopped before it has run this long, so that starting it was worth it.
    """

    name: str = "srtf"
    gain_min: float = 1.25
    quantum_s: float = 60.0

    @property
    def spares_s(self) -> float:
        """A job is not stopped before it has run this long."""
        return self.quantum_s

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, the one with least to do first, stopping longer ones for it."""
        draft = Draft(view)
        for pool in view.pools:
            serve(draft, pool, self._rules(draft, pool))
        return draft.plan()

    def _rules(self, draft: Draft, pool: str) -> Rules:
        times, kept = kept_times(draft, pool), draft.view.derived(Standing).kept(draft.view, pool)

        def run_s(job: Job) -> float | None:
            return times.run_s(job.spec, gpu_type_of(draft.view, job))

        def rank(job: Job) -> Rank:
            total_s = kept.of(job, run_s)
            return priority_of(job.spec), inf if total_s is None else max(0.0, total_s - kept_s(job, draft.now_s))

        return Rules(
            rank=rank,
            lines=by_remaining(draft, rank),
            displaces=self._displaces,
            quantum_s=self.quantum_s,
            because="it has less left to do",
        )

    def _displaces(self, waiting: Rank, running: Rank) -> bool:
        if waiting[0] != running[0]:
            return waiting[0] < running[0]
        return waiting[1] * self.gain_min < running[1]
