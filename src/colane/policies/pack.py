"""PACK: as many lanes on a GPU as its memory safely holds, jobs in order of arrival, those that do not fit are passed.

Jobs in different lanes run at once, which uses a GPU best and promises nobody a share of it (Yu and Chowdhury, MLSys
2020, section 3.4). Where no lane more fits, a job takes turns in one that has room (algorithm 1); `take_turns=False`
leaves that out.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.lanes.assign import find
from colane.model.lane import ShareBetween, Turns
from colane.model.plan import Plan
from colane.policies.blocks.lanes import EQUAL_SHARES, LaneRules, ShareWhen, serve


@dataclass(frozen=True, slots=True)
class Pack:
    """See the module.

    Attributes:
        turns: How the jobs of one lane take turns.
        share_when: When jobs share a GPU.
        share_between: Whose jobs share.
        take_turns: Whether a job may join a lane where there is no room for one of its own.
        max_wait_s: A job that has waited longer goes first and holds up the rest of its pool; None never.
    """

    name: str = "pack"
    turns: Turns = EQUAL_SHARES
    share_when: ShareWhen = ShareWhen.QUEUE
    share_between: ShareBetween = ShareBetween.ALL
    take_turns: bool = True
    max_wait_s: float | None = 3600.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that has a place."""
        draft = Draft(view)
        rules = LaneRules(
            find=find,
            share_when=self.share_when,
            share_between=self.share_between,
            max_wait_s=self.max_wait_s,
            joins=self.take_turns,
        )
        for pool in view.pools:
            serve(draft, pool, rules)
        return draft.plan()
