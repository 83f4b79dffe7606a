"""The lane rule of Salus's released code (SymbioticLab/Salus 7b7f5e06), for comparison with `pack`.

A lane is as large as P + E of its first job; a later job joins if it fits into what is left of it; no lane grows. 300
MiB of each GPU stay free. The code's safety factors of 1.1 on P and 1.05 on the sum are those of the beliefs
(`perf.PerfConfig`), so the rule adds none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.lanes.assign import RESERVE_BYTES, SalusRule, salus_find
from colane.model.lane import ShareBetween, Turns
from colane.model.plan import Plan
from colane.policies.blocks.lanes import EQUAL_SHARES, LaneRules, ShareWhen, serve


@dataclass(frozen=True, slots=True)
class SalusCode:
    """See the module.

    Attributes:
        turns: How the jobs of one lane take turns; `pack` in the code is order of arrival among those ready.
        share_when: When jobs share a GPU.
        share_between: Whose jobs share.
        reserve_bytes: Left free on every GPU.
        max_wait_s: A job that has waited longer goes first and holds up the rest of its pool; None never.
    """

    name: str = "salus-code"
    turns: Turns = EQUAL_SHARES
    share_when: ShareWhen = ShareWhen.QUEUE
    share_between: ShareBetween = ShareBetween.ALL
    reserve_bytes: int = RESERVE_BYTES
    max_wait_s: float | None = 3600.0

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that has a place."""
        draft = Draft(view)
        finder = partial(salus_find, rule=SalusRule(1.0, 1.0, self.reserve_bytes))
        rules = LaneRules(
            find=finder, share_when=self.share_when, share_between=self.share_between, max_wait_s=self.max_wait_s
        )
        for pool in view.pools:
            serve(draft, pool, rules)
        return draft.plan()
