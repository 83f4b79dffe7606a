"""Which job goes on once a holder parks, chosen while it still runs: it can be let go before anything is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from colane.lanes.turns import Contender, LaneRequest, grant, precedence
from colane.model.placement import TurnRule


class Successor(NamedTuple):
    """The job that has the lanes of another as soon as it gives them up."""

    job: int  # its id
    key: tuple[float, ...]  # its place in the order of the rule, which does not change while it waits
    flag: bool = False  # whether it asks at its first boundary


def choose(rule: TurnRule, ready: Sequence[LaneRequest], others: Sequence[LaneRequest]) -> Successor | None:
    """Say which one job is let go when a holder parks, if the holder itself comes later in the order (`comes_before`).

    None where one that comes first waits for another holder: by then it may be the one to replace that.

    Args:
        rule: The turn rule.
        ready: Jobs that are parked at a boundary and may run.
        others: The other jobs that run, or may be running.
    """
    granted = grant(rule, ready, others) if ready else []
    if len(granted) != 1:
        return None
    found = next(claim for claim in ready if claim.member.id == granted[0])
    key = precedence(rule, found.member)
    is_first = all(precedence(rule, one.member) >= key for one in ready if one.lanes & found.lanes)
    return Successor(found.member.id, key) if is_first else None


def comes_before(rule: TurnRule, successor: Successor, leaver: Contender) -> bool:
    """Whether a holder that parks, and wants to go on, goes after its successor: then `grant` says the same.

    Not under `srtf`, where what remains is known only once the turn has been measured.
    """
    return rule is not TurnRule.SRTF and successor.key < precedence(rule, leaver)
