"""The turn rules: who is next, what that gives in the long run, and what a newcomer gets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.lanes.turns import Contender, LaneRequest, TurnClock, grant, precedence, shares, yields_to
from colane.model.placement import TurnRule

RULES = st.sampled_from(TurnRule)
SECONDS = st.floats(0, 1e6, allow_nan=False)
LENGTHS = st.floats(1e-3, 1e3)


def next_holder(rule: TurnRule, ready: Sequence[Contender]) -> int | None:
    return min(ready, key=lambda member: precedence(rule, member)).id if ready else None


@st.composite
def members(draw: st.DrawFn, least: int = 0, most: int = 6) -> list[Contender]:
    ids = draw(st.lists(st.integers(1, 99), unique=True, min_size=least, max_size=most))
    return [
        Contender(
            id=one,
            arrived=draw(st.integers(0, 4)),
            weight=draw(st.floats(0.1, 10)),
            priority=draw(st.integers(-2, 2)),
            virtual_s=draw(SECONDS),
            steps=draw(st.integers(0, 3)),
            remaining_s=draw(st.none() | SECONDS),
            step_s=draw(st.none() | LENGTHS),
            serves=draw(st.booleans()),
        )
        for one in ids
    ]


@given(RULES, members())
def test_a_ready_job_always_runs(rule: TurnRule, ready: list[Contender]) -> None:
    assert (next_holder(rule, ready) is None) == (not ready)
    assert not ready or next_holder(rule, ready) in {member.id for member in ready}


@given(RULES, members(least=1), st.data())
def test_order_of_asking_does_not_matter(rule: TurnRule, ready: list[Contender], data: st.DataObject) -> None:
    assert next_holder(rule, data.draw(st.permutations(ready))) == next_holder(rule, ready)


@given(RULES, members(least=1))
def test_shares_are_whole(rule: TurnRule, lane: list[Contender]) -> None:
    given_shares = shares(rule, lane)
    assert set(given_shares) == {member.id for member in lane}
    assert math.isclose(math.fsum(given_shares.values()), 1.0)
    assert all(share >= 0 for share in given_shares.values())


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        (TurnRule.FIFO, 1),
        (TurnRule.SRTF, 2),
        (TurnRule.FAIR, 3),
        (TurnRule.RR, 4),
        (TurnRule.PRIORITY, 5),
    ],
)
def test_each_rule_has_its_first(rule: TurnRule, first: int) -> None:
    lane = [
        Contender(1, arrived=0, virtual_s=9, steps=9, remaining_s=None),
        Contender(2, arrived=1, virtual_s=8, steps=8, remaining_s=3.0),
        Contender(3, arrived=2, virtual_s=1, steps=7, remaining_s=5.0),
        Contender(4, arrived=3, virtual_s=7, steps=1, remaining_s=6.0),
        Contender(5, arrived=4, virtual_s=6, steps=6, remaining_s=7.0, priority=1),
    ]
    assert next_holder(rule, lane) == first


def test_unknown_remaining_time_goes_last_and_ties_by_arrival_then_id() -> None:
    lane = [Contender(7, 2), Contender(4, 1), Contender(3, 1), Contender(9, 5, remaining_s=1e9)]
    order = []
    while lane:
        order.append(next_holder(TurnRule.SRTF, lane))
        lane = [member for member in lane if member.id != order[-1]]
    assert order == [9, 3, 4, 7]


def test_requests_go_before_training() -> None:
    lane = [Contender(1, 0, virtual_s=0.0), Contender(2, 1, virtual_s=5.0, serves=True)]
    for rule in TurnRule:
        assert next_holder(rule, lane) == 2
        assert yields_to(rule, lane[0], lane[1], quantum_over=False)
        assert not yields_to(rule, lane[1], lane[0], quantum_over=False)


def test_fair_shares_follow_weights_and_rr_shares_step_times() -> None:
    lane = [Contender(1, 0, weight=1.0, step_s=0.1), Contender(2, 1, weight=3.0, step_s=0.3)]
    assert shares(TurnRule.FAIR, lane) == {1: 0.25, 2: 0.75}
    assert shares(TurnRule.RR, lane) == pytest.approx({1: 0.25, 2: 0.75})
    assert shares(TurnRule.FIFO, lane) == {1: 1.0, 2: 0.0}
    assert shares(TurnRule.RR, [Contender(1, 0, step_s=0.1), Contender(2, 1)]) == {1: 0.5, 2: 0.5}


def play(rule: TurnRule, lane: list[Contender], seconds: float) -> dict[int, float]:
    """Run a lane of always-ready jobs step by step; gives their shares."""
    clock, remaining = TurnClock(), {member.id: member.remaining_s for member in lane}
    for member in lane:
        clock.join(member.id, member.weight)
    now_s = 0.0
    while now_s < seconds:
        now = [member._replace(virtual_s=clock.virtual_s(member.id), steps=clock.steps(member.id)) for member in lane]
        holder = next_holder(rule, now)
        assert holder is not None
        step_s = next(member.step_s for member in lane if member.id == holder)
        assert step_s is not None
        clock.ran(holder, step_s, 1)
        now_s += step_s
    return {one: clock.service_s(one) / now_s for one in remaining}


@given(RULES, st.lists(st.tuples(st.floats(0.5, 4), st.floats(0.5, 2)), min_size=1, max_size=4))
def test_shares_are_the_limit_of_turns(rule: TurnRule, jobs: list[tuple[float, float]]) -> None:
    lane = [
        Contender(one, one, weight=weight, step_s=step_s, remaining_s=1.0 + one)
        for one, (weight, step_s) in enumerate(jobs)
    ]
    assert play(rule, lane, 2000.0) == pytest.approx(shares(rule, lane), abs=0.02)


def test_a_newcomer_gets_its_share_at_once() -> None:
    clock = TurnClock()
    for job in (1, 2):
        clock.join(job)
    for job in (1, 2):
        clock.ran(job, 100.0, 100)
    clock.join(3)
    assert (clock.virtual_s(3), clock.steps(1)) == (100.0, 0)
    turns = []
    for _ in range(30):
        ready = [Contender(job, job, virtual_s=clock.virtual_s(job)) for job in (1, 2, 3)]
        holder = next_holder(TurnRule.FAIR, ready)
        assert holder is not None
        clock.ran(holder, 1.0, 1)
        turns.append(holder)
    assert all({*turns[first : first + 3]} == {1, 2, 3} for first in range(0, 30, 3))


def test_a_job_that_comes_back_has_saved_nothing_up() -> None:
    clock = TurnClock()
    for job in (1, 2):
        clock.join(job)
    clock.rest(1)
    clock.ran(2, 50.0)
    clock.wake(1)
    assert clock.virtual_s(1) == 50.0
    clock.ran(1, 5.0)
    clock.wake(1)
    assert clock.virtual_s(1) == 55.0
    clock.leave(2)
    clock.leave(1)
    clock.join(3)
    assert clock.virtual_s(3) == 55.0, "an empty lane remembers where it stood"


def test_a_weight_must_be_positive() -> None:
    with pytest.raises(ValueError, match="job 4 must be positive"):
        TurnClock().join(4, 0.0)


def test_paper_b_g_three_equal_jobs_end_when_published() -> None:
    """Fig. 11: 145, 75 and 35 steps of 0.3618 s that come at 0, 15 and 30 s end at 68.0, 81.9 and 92.2 s."""
    step_s = 0.3618
    jobs = [(0.0, 145), (15.0, 75), (30.0, 35)]
    left: dict[int, int] = {}
    ends: dict[int, float] = {}
    clock, now_s = TurnClock(), 0.0
    waiting = dict(enumerate(jobs))
    while waiting or left:
        for job, (arrival_s, steps) in list(waiting.items()):
            if arrival_s <= now_s:
                clock.join(job)
                left[job] = steps
                del waiting[job]
        holder = next_holder(TurnRule.FAIR, [Contender(job, job, virtual_s=clock.virtual_s(job)) for job in left])
        assert holder is not None, "the lane is never idle in this figure"
        clock.ran(holder, step_s, 1)
        now_s += step_s
        left[holder] -= 1
        if not left[holder]:
            del left[holder]
            ends[holder] = now_s
            clock.leave(holder)
    assert sorted(ends.values()) == pytest.approx([68.0, 81.9, 92.2], abs=0.5)


@given(RULES, members(), members(), st.data())
def test_no_lane_is_given_twice(
    rule: TurnRule, ready: list[Contender], holding: list[Contender], data: st.DataObject
) -> None:
    lanes = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)
    free = set(range(4))
    held = []
    for member in holding:
        wanted = data.draw(lanes) & free
        free -= wanted
        held.append(LaneRequest(member._replace(id=member.id + 100), frozenset(wanted)))
    claims = {member.id: LaneRequest(member, data.draw(lanes)) for member in ready}
    granted = grant(rule, claims.values(), held)
    taken = [lane for claim in held for lane in claim.lanes]
    taken += [lane for one in granted for lane in claims[one].lanes]
    assert len(taken) == len(set(taken))
    if claims and not held:
        assert next_holder(rule, ready) in granted, "an idle node always runs the first"


def test_a_gang_is_not_starved_by_single_jobs() -> None:
    gang = LaneRequest(Contender(1, 0, virtual_s=1.0), frozenset("ab"))
    left, right = (LaneRequest(Contender(n, n, virtual_s=2.0), frozenset(lane)) for n, lane in ((2, "a"), (3, "b")))
    assert grant(TurnRule.FAIR, [gang, left], [right]) == [], "lane a is kept for the gang"
    assert grant(TurnRule.FAIR, [gang, left, right], []) == [1]
    ahead = right._replace(member=right.member._replace(virtual_s=0.0))
    assert grant(TurnRule.FAIR, [gang, left], [ahead]) == [2], "it would wait long, so lane a is used"
