"""Jobs take turns: who has had least of a GPU runs, and leaves it after a quantum for one who has had less.

A policy without parts that stops jobs: `colane simulate -c dgx1 -t jobs.csv -p least_served.py:LeastServed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from colane.core.cluster.draft import Draft
from colane.model.job import JobState
from colane.model.placement import Turns
from colane.model.reason import Reason, Why
from colane.scheduling.mechanisms.topology.free import first_fit


@dataclass(frozen=True)
class LeastServed:
    quantum_s: float = 600.0
    name: str = "least-served"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = 0.0

    def plan(self, view):
        draft = Draft(view)
        for pool in view.pools:
            waiting = sorted(view.queue(pool), key=lambda job: (view.job(job).attempt, job))
            left = [job for job in map(view.job, waiting) if not self.starts(draft, job)]
            running = [job for job in view.jobs.values() if job.state is JobState.RUNNING and job.spec.pool == pool]
            served = [job for job in running if view.now_s >= job.since_s + self.quantum_s and job.spec.preemptible]
            for job, other in zip(left, sorted(served, key=lambda one: (-one.attempt, one.id)), strict=False):
                if job.attempt <= other.attempt:  # it has had fewer turns, or as many
                    draft.stop(other, Reason(Why.PREEMPTED, {"because": "its turn is over"}, (job.id,)), job.id)
            if left and running:
                next_s = min(job.since_s for job in running) + self.quantum_s
                draft.plan_again(pool, max(next_s, view.now_s + 1.0))
        return draft.plan()

    def starts(self, draft, job):
        gpus = first_fit(draft, job.effective)
        if gpus is not None:
            draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        return gpus is not None
