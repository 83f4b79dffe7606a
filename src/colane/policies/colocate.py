"""Co-location: jobs predicted to gain from each other's company share a GPU (paper A, algorithm 2, corrected).

Waiting jobs ascend by (C, M); each goes to the GPU with the smallest sums, and joins its jobs if the predicted
speed-up of them all together is at least `speedup_min`. The corrections to the printed algorithm are in
`docs/papers/colocation.md`: load is kept per GPU and grows with every decision, a free GPU always accepts, memory is
a hard limit, an unknown job runs alone first, company is capped, and a job that has waited too long is served before
all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from colane.core.draft import Draft, Walk
from colane.core.load import GpuLoad
from colane.core.view import ClusterView
from colane.model.job import Job, JobSpec
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Prediction
from colane.policies.blocks.orderings import by_load
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.refusals import behind, no_place
from colane.policies.blocks.sharing import has_room, is_known, predict, share_reason


@dataclass(frozen=True, slots=True)
class Colocate:
    """See the module.

    Attributes:
        speedup_min: Jobs share when the predicted speed-up is at least this (paper A: 1).
        company_max: Jobs on one GPU at most (paper A studied 2 and 3).
        max_wait_s: A job that has waited longer goes first and holds up the rest of its pool; None never.
    """

    name: str = "colocate"
    speedup_min: float = 1.0
    company_max: int = 3
    max_wait_s: float | None = 3600.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that has a GPU to itself or gains by sharing one."""
        draft = Draft(view)
        for pool in view.pools:
            self._plan_pool(draft, pool)
        return draft.plan()

    def _plan_pool(self, draft: Draft, pool: str) -> None:
        """Walk the queue until nobody joins: a company that has grown may suit a job it did not suit before."""
        joined = True
        while joined:
            decided = len(draft.actions)
            self._walk(draft, pool)
            joined = any(action.reason.why is Why.SHARES for action in draft.actions[decided:])

    def _walk(self, draft: Draft, pool: str) -> None:
        if not self._serve_overdue(draft, pool):
            return
        walk = Walk(draft, pool, by_load(draft, pool))
        for job in walk:
            if draft.is_waiting(job.id) and not self._place(draft, job):
                if draft.view.explain is not None:
                    draft.wait_class(job.spec, self._refusal(draft, job.spec))
                walk.leave_class()

    def _serve_overdue(self, draft: Draft, pool: str) -> bool:
        """Serve jobs past their waiting time in order; False when one of them finds no place."""
        for job in map(draft.view.job, draft.view.queue(pool)):
            if self.max_wait_s is None or draft.now_s - job.submit_s <= self.max_wait_s:
                return True
            if draft.is_waiting(job.id) and not self._place(draft, job):
                if draft.view.explain is not None:
                    draft.wait(job.id, self._refusal(draft, job.spec))
                draft.wait_rest(pool, behind(job.id))
                return False
        return True

    def _place(self, draft: Draft, job: Job) -> bool:
        """Start a job on free GPUs, else in company that gains by it."""
        gpus = first_fit(draft, job.spec)
        if gpus is not None:
            draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
            return True
        for load, prediction in self._companies(draft, job.spec):
            if prediction.speedup >= self.speedup_min:
                draft.start(job, [load], share_reason(Why.SHARES, load, prediction, self.speedup_min))
                return True
        return False

    def _companies(self, draft: Draft, spec: JobSpec) -> Iterator[tuple[GpuLoad, Prediction]]:
        """Of each GPU type, the lightest company the job fits into; heavier company would pay still less."""
        if not spec.share or spec.gpus > 1:
            return
        for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
            load = self._lightest(draft, spec, kind)
            prediction = predict(draft, spec, load) if load is not None else None
            if load is not None and prediction is not None:
                yield load, prediction

    def _refusal(self, draft: Draft, spec: JobSpec) -> Reason:
        """Why nothing was found: company that would not pay, a first run alone, or a need that cannot be met."""
        for load, prediction in self._companies(draft, spec):
            return share_reason(Why.NOT_WORTH_SHARING, load, prediction, self.speedup_min)
        lacking = no_place(draft, spec)
        known = any(is_known(draft, spec, kind) for kind in draft.view.gpu_types(spec.pool, spec.gpu_type))
        first_run = spec.share and spec.gpus == 1 and not known and lacking.why is Why.NO_FREE_GPU
        return replace(lacking, why=Why.UNKNOWN_ALONE_FIRST) if first_run else lacking

    def _lightest(self, draft: Draft, spec: JobSpec, gpu_type: str) -> GpuLoad | None:
        terms = draft.beliefs.terms(spec, gpu_type)
        if terms.memory is None or terms.load is None:
            return None
        need_bytes = sum(terms.memory)
        for load in draft.open_gpus((spec.pool, gpu_type), self.company_max - 1):
            if need_bytes <= load.left_bytes and load.admits(spec.circle) and has_room(draft, load, spec):
                return load
        return None
