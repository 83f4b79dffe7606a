"""FIFO with skip: order of arrival, whole GPUs, jobs that do not fit are passed.

The work-conserving baseline of most evaluations; a large job may wait for as long as small ones keep coming.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft, Walk
from colane.core.view import ClusterView
from colane.model.plan import Plan
from colane.policies.blocks.refusals import refuse_class
from colane.policies.blocks.serving import may_start, start_on_free


@dataclass(frozen=True, slots=True)
class FifoSkip:
    """See the module."""

    name: str = "fifo-skip"

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, in order."""
        draft = Draft(view)
        for pool in view.pools:
            if may_start(draft, pool):
                _plan_pool(draft, pool)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str) -> None:
    walk = Walk(draft, pool, {})
    for job in walk:
        if not start_on_free(draft, job):
            refuse_class(draft, job)
            walk.leave_class()
