"""Sets under measurement: jobs started together on one GPU with nobody else (`colane profile --together`).

Measuring is not scheduling, so no policy has to know of it: complete sets are placed before the policy is asked.
"""

from __future__ import annotations

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.model.reason import Reason, Why


def plan_companies(view: ClusterView) -> Plan:
    """Start every complete set for which a GPU is free; the members of others wait with their reason."""
    draft = Draft(view)
    for pool in view.pools:
        sets: dict[str, list[Job]] = {}
        for job in map(view.job, view.queue(pool).companies):
            sets.setdefault(job.spec.company or "", []).append(job)
        for jobs in sets.values():
            _place(draft, jobs)
    return draft.plan()


def _place(draft: Draft, jobs: list[Job]) -> None:
    need = jobs[0].spec.company_size
    if len(jobs) < need:
        _wait(draft, jobs, Reason(Why.COMPANY_INCOMPLETE, {"have": len(jobs), "need": need}))
        return
    spec = jobs[0].spec
    for gpu_type in draft.view.gpu_types(spec.pool, spec.gpu_type):
        order = next(draft.free((spec.pool, gpu_type)).nodes_with(1), None)
        if order is not None:
            _start(draft, jobs, order, gpu_type)
            return
    facts: dict[str, str | int | float] = {"need": 1, "gpu_type": spec.gpu_type or "any", "have": 0}
    _wait(draft, jobs, Reason(Why.NO_FREE_GPU, facts, draft.view.holders(spec.pool)))


def _start(draft: Draft, jobs: list[Job], order: int, gpu_type: str) -> None:
    load = next(draft.free_gpus(draft.view.node_at(order), gpu_type))
    reason = Reason(Why.MEASURED_TOGETHER, {"need": len(jobs), "gpu": str(load.id)}, tuple(j.id for j in jobs))
    for job in jobs:
        draft.start(job, [draft.load(load.id)], reason)


def _wait(draft: Draft, jobs: list[Job], reason: Reason) -> None:
    for job in jobs:
        draft.wait(job.id, reason)
