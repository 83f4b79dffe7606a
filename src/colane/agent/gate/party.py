"""One job of a node as the gate's rules keep it: what is wanted of it, how it stands, what it has had."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from colane.agent.gate.memory import Tenant
from colane.agent.gate.values import Stand, Wish
from colane.model.lane import TurnRule
from colane.model.progress import KEPT, UNGATED

PROBE_STEPS = 3
"""Under `srtf` a job whose steps are counted but not measured yet runs so many of them first."""


@dataclass(slots=True)
class Party:
    """A job of this node.

    Attributes:
        wish: What is wanted of it.
        arrived: Order of arrival.
        since_s: Since when it stands as it does.
        booked_s: Until when its service and its wait are counted.
        stand: What it does.
        ungated: Why it runs without turns; empty while it has them.
        kept_for: Jobs without turns beside which its steps have no room.
        granted: Whether it was let go, and not only seen to run.
        counted_s: Since when its steps count among its company: when the last newcomer came.
        asked_s: Since when it is asked for its turn.
        steps: Steps it has done.
        measured: Steps by which `step_s` is known.
        step_s: Its step time in its turns.
        service_s: Time it has held its lanes.
        wait_s: Time it has waited for them.
        mates: Jobs it shares lanes with.
        company_service_s: Service when it came to have these mates.
        company_wait_s: Wait then.
    """

    wish: Wish
    arrived: int
    since_s: float
    booked_s: float
    stand: Stand = Stand.AWAY
    ungated: str = ""
    kept_for: tuple[int, ...] = ()
    granted: bool = False
    counted_s: float = 0.0
    asked_s: float | None = None
    steps: int = 0
    measured: int = 0
    step_s: float | None = None
    service_s: float = 0.0
    wait_s: float = 0.0
    mates: tuple[int, ...] = ()
    company_service_s: float = 0.0
    company_wait_s: float = 0.0

    def steps_beside(self, done: int, now_s: float) -> int:
        """How many of the steps of the turn that ends now it made beside the company it has: all where nobody came."""
        if self.counted_s <= self.since_s:
            return done
        return min(done, ceil(done * (now_s - self.counted_s) / (now_s - self.since_s)))

    @property
    def holds(self) -> bool:
        """Whether its lanes are its own now."""
        return self.stand is Stand.RUNNING

    @property
    def wants(self) -> bool:
        """Whether it waits for its turn and may have one."""
        return self.stand is Stand.READY and not self.is_to_wait

    @property
    def is_to_wait(self) -> bool:
        """Whether it stays at its boundary, whosever turn it is."""
        return self.wish.paused or bool(self.kept_for)

    @property
    def waits(self) -> bool:
        """Whether it waits for its turn, or for room to have one."""
        return self.stand is Stand.READY and not self.wish.paused

    @property
    def is_parked(self) -> bool:
        """Whether it is paused and waits at a boundary."""
        return self.wish.paused and self.stand in {Stand.READY, Stand.IDLE}

    @property
    def is_off(self) -> bool:
        """Whether it has given its lanes up."""
        return self.wish.hold and self.is_parked


def tenant(party: Party) -> Tenant:
    """What it holds of the memory of its devices."""
    wish = party.wish
    lanes = () if party.is_off else wish.lanes
    return Tenant(wish.job, party.arrived, lanes, wish.memory, bool(party.ungated), party.is_parked)


def note(party: Party) -> str:
    """Why it has no turns."""
    if party.ungated or not party.kept_for:
        return party.ungated
    jobs = ", ".join(str(job) for job in party.kept_for)
    return f"waits at its step boundary: beside job {jobs}, which runs without turns, its memory does not fit"


def times(party: Party, now_s: float) -> tuple[float, float]:
    """Service and wait with what is not booked yet."""
    passed_s = now_s - party.booked_s
    return (
        party.service_s + (passed_s if party.holds else 0.0),
        party.wait_s + (passed_s if party.waits else 0.0),
    )


def state(party: Party) -> str:
    """How it stands in its lanes, in a word (`Seen.state`)."""
    if party.ungated:
        return UNGATED
    if party.wish.paused and not party.holds:
        return "paused"
    if party.kept_for and not party.holds:
        return KEPT
    return "running" if party.holds or party.stand is Stand.AWAY else "waiting"


def is_probed(party: Party, rule: TurnRule) -> bool:
    """Whether its steps must be measured before its remaining time can be said."""
    known = rule is not TurnRule.SRTF or party.wish.steps_total is None
    return not known and party.measured < PROBE_STEPS


def remaining_s(party: Party, rule: TurnRule, running_s: float) -> float | None:
    """Time it still needs its lanes, so long into its turn; 0 until that is measured, None where no end is known."""
    if party.wish.steps_total is None:
        return None
    if is_probed(party, rule) or party.step_s is None:
        return 0.0
    return max(0.0, (party.wish.steps_total - party.steps) * party.step_s - running_s)
