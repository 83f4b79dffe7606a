"""Best fit: order of arrival, whole GPUs on the node that keeps the fewest free; jobs that do not fit are passed.

Within a node, the sockets with the fewest free GPUs come first. The baseline BF of paper C.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft, Walk
from colane.core.view import ClusterView
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import best_fit
from colane.policies.blocks.refusals import refuse_class


@dataclass(frozen=True, slots=True)
class BestFit:
    """See the module."""

    name: str = "best-fit"

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, in order."""
        draft = Draft(view)
        for pool in view.pools:
            _plan_pool(draft, pool)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str) -> None:
    walk = Walk(draft, pool, {})
    for job in walk:
        gpus = best_fit(draft, job.spec)
        if gpus is None:
            refuse_class(draft, job)
            walk.leave_class()
            continue
        node = draft.view.nodes[gpus[0].id.node]
        left = draft.free_count(node, gpus[0].gpu.type) - len(gpus)
        draft.start(job, gpus, Reason(Why.BEST_FIT, {"gpu": str(gpus[0].id), "left": left}))
