"""Which job has the next turn in a lane (paper B, section 3.4, and the order functions of its released scheduler).

Pure rules for jobs that share a lane and run one at a time. Live, the agent's gate grants turns by them; in virtual
time a lane is divided by `shares`, which is the limit of those grants. Only ready jobs are given, so every rule is
work-conserving: a job that loads data or has not reached a boundary holds no other up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from colane.model.placement import TurnRule, Turns


class Contender(NamedTuple):
    """A job of a lane, as the turn rules see it."""

    id: int  # the job
    arrived: int  # its serial number in the lane: one that came earlier has the smaller number
    weight: float = 1.0  # its share under `fair`, against the weights of the others; positive
    priority: int = 0  # higher goes first under `priority`
    service_s: float = 0.0  # time it has held the lane
    # service divided by weight, counted from where the lane stood when it came (see `TurnClock`)
    virtual_s: float = 0.0
    steps: int = 0  # steps it has run since the jobs of the lane last changed
    remaining_s: float | None = None  # time it still needs the lane, None when unknown
    step_s: float | None = None  # length of its steps, None when unknown
    serves: bool = False  # it answers requests: it goes before training under every rule
    # part of the lane's time it wants in the long run: all of it, or less if it is idle in between
    demand_ratio: float = 1.0


_Key = tuple[float, ...]

_KEYS: dict[TurnRule, Callable[[Contender], float]] = {
    TurnRule.FIFO: lambda member: member.arrived,
    TurnRule.SRTF: lambda member: math.inf if member.remaining_s is None else member.remaining_s,
    TurnRule.FAIR: lambda member: member.virtual_s,
    TurnRule.RR: lambda member: member.steps,
    TurnRule.PRIORITY: lambda member: -member.priority,
}

SHARED = frozenset({TurnRule.FAIR, TurnRule.RR})
"""Rules that hand the lane round; under the others the first keeps it until a better one comes."""


def precedence(rule: TurnRule, member: Contender) -> _Key:
    """Key that orders members: the smaller one goes first; ties by arrival, then id."""
    return (not member.serves, _KEYS[rule](member), member.arrived, member.id)


def yields_to(rule: TurnRule, holder: Contender, other: Contender, *, quantum_over: bool) -> bool:
    """Whether the holder of a lane should give it up because `other` is ready.

    Under `fair` and `rr` that is so once its quantum is over, whichever is next then; under the other rules, and for
    one that serves requests, as soon as a better one is ready.
    """
    if rule in SHARED and holder.serves == other.serves:
        return quantum_over
    return precedence(rule, other) < precedence(rule, holder)


HANDOFF_RATIO_MAX = 0.01
"""Part of a lane's time that passing turns on may take."""

QUANTUM_MAX_S = 0.25
"""No turn is made longer than this for the sake of that, so that no job waits for long."""


def quantum_s(turns: Turns, handoff_s: float | None) -> float:
    """How long a turn lasts: as it was set, else so long that passing it on takes 1 % of the time at most.

    Args:
        turns: Of the lane.
        handoff_s: Time from the end of a turn to the beginning of the next; None while unknown, then a turn is a step.
    """
    if turns.quantum_s is not None:
        return turns.quantum_s
    return min(QUANTUM_MAX_S, (handoff_s or 0.0) * (1 / HANDOFF_RATIO_MAX - 1))


def shares(rule: TurnRule, members: Sequence[Contender]) -> dict[int, float]:
    """Long-run share of a lane's time that each of these jobs gets by its grants: at most what it wants, 1 in all.

    Servers go before training. Among equals, `fair` divides by weight; `rr` gives as many steps to each, so time
    in proportion to their step times (equal where one is unknown); what one does not want goes to the others. Under the
    other rules the first gets all it wants, then the next.
    """
    given: dict[int, float] = {}
    left = 1.0
    for serves in (True, False):
        group = [member for member in members if member.serves == serves]
        found = _divided(rule, group, left) if rule in SHARED else _in_order(rule, group, left)
        given.update(found)
        left = max(0.0, left - math.fsum(found.values()))
    return given


def _in_order(rule: TurnRule, members: Sequence[Contender], left: float) -> dict[int, float]:
    given = {}
    for member in sorted(members, key=lambda member: precedence(rule, member)):
        given[member.id] = min(left, member.demand_ratio)
        left -= given[member.id]
    return given


def _divided(rule: TurnRule, members: Sequence[Contender], left: float) -> dict[int, float]:
    """By weight; those that want less than that come first, so that the others divide what remains."""
    weights = dict(zip([member.id for member in members], _weights(rule, members), strict=True))
    given, open_ = {}, math.fsum(weights.values())
    for member in sorted(members, key=lambda member: member.demand_ratio / weights[member.id]):
        part = left * weights[member.id] / open_ if open_ > 0 else 0.0
        given[member.id] = min(part, member.demand_ratio)
        left -= given[member.id]
        open_ -= weights[member.id]
    return given


def _weights(rule: TurnRule, members: Sequence[Contender]) -> list[float]:
    if rule is TurnRule.FAIR:
        return [member.weight for member in members]
    known = [member.step_s for member in members if member.step_s]
    return known if len(known) == len(members) else [1.0] * len(members)


class LaneRequest(NamedTuple):
    """A job and the lanes it needs, all at once."""

    member: Contender  # the job
    lanes: frozenset[Hashable]  # its lanes; a gang has several, each a hashable name


def grant(rule: TurnRule, ready: Iterable[LaneRequest], holding: Iterable[LaneRequest]) -> list[int]:
    """Say which jobs may start to run now; a gang gets all of its lanes or none.

    Jobs are asked in order of the rule. One that must wait for a holder it would replace keeps its free lanes from
    those behind it, so gangs are not starved; behind a holder that goes before it, it leaves them to others.

    Args:
        rule: The turn rule.
        ready: Jobs that are parked at a boundary and may run.
        holding: Jobs that run, or may be running.
    """
    taken = {lane: claim.member for claim in holding for lane in claim.lanes}
    closed = set(taken)
    granted = []
    for claim in sorted(ready, key=lambda claim: precedence(rule, claim.member)):
        if not claim.lanes & closed:
            granted.append(claim.member.id)
            closed |= claim.lanes
        elif _replaces(rule, claim, [taken[lane] for lane in claim.lanes if lane in taken]):
            closed |= claim.lanes
    return granted


def _replaces(rule: TurnRule, claim: LaneRequest, holders: Sequence[Contender]) -> bool:
    mine = precedence(rule, claim.member)
    return bool(holders) and all(mine < precedence(rule, holder) for holder in holders)


@dataclass(slots=True)
class _Account:
    weight: float
    service_s: float
    virtual_s: float
    steps: int
    active: bool


class TurnClock:
    """Service and virtual time of jobs that share lanes.

    A newcomer, and one that comes back after it did not want to run, starts at the least virtual time of the active
    jobs: its share begins at once, and it has no claim on the time before (the released code of paper B starts at zero,
    so that a newcomer takes the lane alone until it has caught up).
    """

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._floor_s = 0.0

    def __contains__(self, job: int) -> bool:
        """Whether it has joined."""
        return job in self._accounts

    def join(self, job: int, weight: float = 1.0, among: Container[int] | None = None) -> None:
        """Take a job in, active; the step counts of its lane begin anew (as paper B's code does for `rr`).

        Args:
            job: The newcomer.
            weight: Its share, against the weights of the others.
            among: The jobs it shares lanes with; None for all.

        Raises:
            ValueError: The weight is not positive.
        """
        if not weight > 0:
            raise ValueError(f"the weight of job {job} must be positive, got {weight}")
        lane_mates = self._lane_mates(job, among)
        self._accounts[job] = _Account(weight, 0.0, self._start_s(lane_mates), 0, active=True)
        for account in lane_mates:
            account.steps = 0

    def weigh(self, job: int, weight: float) -> None:
        """Give a job another weight from now on."""
        self._accounts[job].weight = weight

    def leave(self, job: int) -> None:
        """Forget a job."""
        self._accounts.pop(job, None)
        self._raise_floor()

    def is_active(self, job: int) -> bool:
        """Whether it wants to run."""
        return self._accounts[job].active

    def rest(self, job: int) -> None:
        """It does not want to run: it is paused, or away from its boundaries."""
        self._accounts[job].active = False
        self._raise_floor()

    def wake(self, job: int, among: Container[int] | None = None) -> None:
        """It wants to run again."""
        account = self._accounts[job]
        if not account.active:
            account.virtual_s = max(account.virtual_s, self._start_s(self._lane_mates(job, among)))
            account.active = True

    def ran(self, job: int, service_s: float, steps: int = 0) -> None:
        """Add a turn, or a part of one."""
        account = self._accounts[job]
        account.service_s += service_s
        account.virtual_s += service_s / account.weight
        account.steps += steps
        self._raise_floor()

    def service_s(self, job: int) -> float:
        """Time it has held the lane."""
        return self._accounts[job].service_s

    def virtual_s(self, job: int) -> float:
        """Its virtual time."""
        return self._accounts[job].virtual_s

    def steps(self, job: int) -> int:
        """Its steps since the jobs of the lane last changed."""
        return self._accounts[job].steps

    def _lane_mates(self, job: int, among: Container[int] | None) -> list[_Account]:
        return [a for one, a in self._accounts.items() if one != job and (among is None or one in among)]

    def _start_s(self, lane_mates: Sequence[_Account]) -> float:
        """Where a lane stands: at its active jobs' least virtual time; where all rest, they must not be overtaken."""
        active = [account.virtual_s for account in lane_mates if account.active]
        if active:
            return min(active)
        return max((account.virtual_s for account in lane_mates), default=self._floor_s)

    def _raise_floor(self) -> None:
        active = (account.virtual_s for account in self._accounts.values() if account.active)
        self._floor_s = max(self._floor_s, min(active, default=self._floor_s))
