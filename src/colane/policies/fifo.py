"""FIFO: order of arrival, whole GPUs, the head of the line blocks (paper A's baseline, section 4.5).

Higher priorities go first; among equals the one that came first.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import JobSpec
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.refusals import behind, refuse


@dataclass(frozen=True, slots=True)
class Fifo:
    """See the module.

    Attributes:
        gpu_types: Tried first, in this order; the pool's others follow by name.
    """

    name: str = "fifo"
    gpu_types: tuple[str, ...] = ()

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order until one finds no place."""
        draft = Draft(view)
        for pool in view.pools:
            _plan_pool(draft, pool, self.gpu_types)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str, preferred: tuple[str, ...]) -> None:
    for job_id in draft.view.queue(pool):
        job = draft.view.job(job_id)
        gpus = first_fit(draft, job.spec, _in_order(draft, job.spec, preferred) if preferred else None)
        if gpus is None:
            refuse(draft, job)
            draft.block(job)
            draft.wait_rest(pool, behind(job_id))
            return
        draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))


def _in_order(draft: Draft, spec: JobSpec, preferred: tuple[str, ...]) -> list[str]:
    types = draft.view.gpu_types(spec.pool, spec.gpu_type)
    return sorted(types, key=lambda kind: preferred.index(kind) if kind in preferred else len(preferred))
