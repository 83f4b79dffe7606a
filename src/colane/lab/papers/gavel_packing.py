"""Gavel's FIFO with packing, for comparison (Narayanan et al., OSDI 2020; mode `packing` of its `policies/fifo.py`).

Jobs start in order of arrival. When no GPU is free, the head of the line joins the running job with which the sum of
normalised throughputs is highest, if it exceeds the threshold; otherwise the line waits. Pairs only. It knows the true
throughputs, as Gavel's simulation does. Not copied: Gavel pairs anew in every round, here a pair stays until one ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.lab.simulate.world import Running, World
from colane.model.job import Job
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why
from colane.perf.estimates import profile_key
from colane.scheduling.engine.refusals import behind, no_place
from colane.scheduling.mechanisms.topology.free import first_fit


@dataclass(frozen=True, slots=True)
class GavelFifoPacked:
    """The policy, as Gavel's simulator decides it.

    Attributes:
        world: The truth.
        kinds: One running job of each kind.
        threshold: Gavel's default is 1.5.
    """

    world: World
    kinds: Mapping[ProfileKey, Running]
    threshold: float = 1.5
    name: str = "gavel-fifo-packed"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf
    _sums: dict[tuple[ProfileKey, ProfileKey], float] = field(default_factory=dict)

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order until one finds neither a free GPU nor a partner."""
        draft = Draft(view)
        for pool in view.pools:
            for job_id in view.queue(pool):
                job = view.job(job_id)
                if not self._start(draft, job):
                    draft.wait(job_id, no_place(draft, job.spec).reason)
                    draft.wait_rest(pool, behind(job_id))
                    break
        return draft.plan()

    def _start(self, draft: Draft, job: Job) -> bool:
        gpus = first_fit(draft, job.spec)
        if gpus is not None:
            draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
            return True
        best = max(self._partners(draft, job), key=lambda found: found[0], default=None)
        if best is None:
            return False
        total, load = best
        facts: dict[str, str | int | float] = {
            "gpu": str(load.id),
            "speedup": total,
            "threshold": self.threshold,
            "source": "oracle",
        }
        draft.start(job, [load], Reason(Why.SHARES, facts, load.jobs))
        return True

    def _partners(self, draft: Draft, job: Job) -> list[tuple[float, GpuLoad]]:
        """GPUs whose only job it may join, with the sum of normalised throughputs; lightest first."""
        spec = job.spec
        if spec.gpus != 1:
            return []
        found = []
        for kind in draft.view.gpu_types_for(spec):
            key, memory = profile_key(spec, kind), draft.beliefs.terms(spec, kind).memory
            for load in draft.open_gpus((spec.pool, kind), 1):
                total = self.normalised(key, load.bookings[0].key)
                if total > self.threshold and memory is not None and sum(memory) <= load.left_bytes:
                    found.append((total, load))
        return found

    def normalised(self, first: ProfileKey, second: ProfileKey) -> float:
        """Sum over both of speed together / speed alone."""
        pair = (first, second) if str(first) <= str(second) else (second, first)
        if pair not in self._sums:
            a, b = self.kinds[pair[0]], self.kinds[pair[1]]
            self._sums[pair] = sum(
                self.world.steps_per_s(one, [other]) / self.world.steps_per_s(one, ())
                for one, other in ((a, b), (b, a))
            )
        return self._sums[pair]
