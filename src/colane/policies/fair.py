"""One lane for each GPU: its jobs take turns, step by step, in equal shares (FAIR) or the shortest first (SRTF).

A job is admitted, in order of arrival and with skip, while its P and the largest E of all jobs there fit (Yu and
Chowdhury, MLSys 2020, section 3.4; both policies were run with a single lane). Paused jobs keep their P on the GPU, so
a job that would be first may still have to wait for memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.lanes.assign import find_single
from colane.model.lane import ShareBetween, Turns
from colane.model.plan import Plan
from colane.policies.blocks.lanes import EQUAL_SHARES, LaneRules, ShareWhen, serve


@dataclass(frozen=True, slots=True)
class Fair:
    """See the module; `salus-srtf` is this policy with other turns.

    Attributes:
        turns: How the jobs of a GPU take turns.
        share_when: When jobs share a GPU.
        share_between: Whose jobs share.
        max_wait_s: A job that has waited longer goes first and holds up the rest of its pool; None never.
    """

    name: str = "fair"
    turns: Turns = EQUAL_SHARES
    share_when: ShareWhen = ShareWhen.QUEUE
    share_between: ShareBetween = ShareBetween.ALL
    max_wait_s: float | None = 3600.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that has a place."""
        draft = Draft(view)
        rules = LaneRules(
            find=find_single,
            share_when=self.share_when,
            share_between=self.share_between,
            max_wait_s=self.max_wait_s,
            opens=False,
        )
        for pool in view.pools:
            serve(draft, pool, rules)
        return draft.plan()
