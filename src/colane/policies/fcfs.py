"""FCFS: order of arrival, the head of the line blocks, the first free GPUs in order of sockets (paper C's baseline).

It differs from `fifo` only where GPUs of one socket do not have neighbouring numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_by_socket
from colane.policies.blocks.refusals import behind, refuse


@dataclass(frozen=True, slots=True)
class FirstComeFirstServed:
    """See the module."""

    name: str = "fcfs"

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order until one finds no place."""
        draft = Draft(view)
        for pool in view.pools:
            _plan_pool(draft, pool)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str) -> None:
    for job_id in draft.view.queue(pool):
        job = draft.view.job(job_id)
        gpus = first_by_socket(draft, job.spec)
        if gpus is None:
            refuse(draft, job)
            draft.block(job)
            draft.wait_rest(pool, behind(job_id))
            return
        draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
