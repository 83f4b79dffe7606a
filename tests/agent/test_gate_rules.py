"""The gate's state machine: lanes are held once, no job is forgotten, one that hangs is left out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from colane.agent.gate.rules import GateState
from colane.agent.gate.values import GateJob, GateTimeouts, Lane, Orders
from colane.model.placement import TurnRule, Turns
from colane.model.profile import Memory
from tests.examples import examples

LEFT, RIGHT = (0, 0), (1, 0)


def floor_of(*gate_jobs: GateJob, turns: Turns | None = None, bounds: GateTimeouts | None = None) -> GateState:
    floor = GateState(bounds=bounds or GateTimeouts())
    floor.follow(gate_jobs, turns or Turns(), 0.0)
    return floor


def park_all(floor: GateState, jobs: range, now_s: float = 0.0) -> None:
    for job in jobs:
        floor.parked(job, 1, now_s)


def run(floor: GateState, seconds: float, step_s: dict[int, float]) -> list[int]:
    """Let every holder take its steps; gives who ran, in order."""
    order: list[int] = []
    now_s, steps = 0.0, dict.fromkeys(step_s, 1)
    while now_s < seconds:
        orders = floor.settle(now_s)
        order += orders.go
        (holder,) = floor.holders()
        now_s += step_s[holder]
        steps[holder] += 1
        if floor.settle(now_s).flags[holder]:
            floor.parked(holder, steps[holder], now_s)
    return order


def test_a_job_alone_is_never_asked() -> None:
    floor = floor_of(GateJob(job=1, lanes=(LEFT,)), GateJob(job=2, lanes=(RIGHT,)))
    floor.parked(1, 5, 0.0)
    orders = floor.settle(0.0)
    assert orders == Orders([1], {1: False, 2: False}, None)
    assert (floor.seen(1.0), floor.is_busy()) == ({}, False)


def test_three_equal_jobs_get_a_third_each() -> None:
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in (1, 2, 3)))
    park_all(floor, range(1, 4))
    order = run(floor, 9.0, dict.fromkeys((1, 2, 3), 0.1))
    assert order[:6] == [1, 2, 3, 1, 2, 3]
    seen = floor.seen(9.0)
    assert [round(seen[job].share_ratio, 2) for job in (1, 2, 3)] == pytest.approx([1 / 3] * 3, abs=0.02)


def test_weights_and_quanta() -> None:
    gate_jobs = (GateJob(job=1, lanes=(LEFT,), weight=3.0), GateJob(job=2, lanes=(LEFT,)))
    floor = floor_of(*gate_jobs, turns=Turns(rule=TurnRule.FAIR, quantum_s=1.0))
    park_all(floor, range(1, 3))
    assert floor.settle(0.0).next_s == 1.0
    order = run(floor, 80.0, {1: 0.3, 2: 0.3})
    assert len(order) == pytest.approx(80 / 1.2, abs=2), "a turn is a second, rounded up to whole steps"
    assert floor.seen(80.0)[1].share_ratio == pytest.approx(0.75, abs=0.03)


def test_a_weight_that_changes_counts_from_then_on() -> None:
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in (1, 2)))
    park_all(floor, range(1, 3))
    run(floor, 4.0, {1: 0.1, 2: 0.1})
    before = {job: seen.service_s for job, seen in floor.seen(4.0).items()}
    floor.follow([GateJob(job=1, lanes=(LEFT,), weight=3.0), GateJob(job=2, lanes=(LEFT,))], Turns(), 4.0)
    now_s, steps = 4.0, dict.fromkeys((1, 2), 100)
    while now_s < 12.0:
        floor.settle(now_s)
        (holder,) = floor.holders()
        now_s, steps[holder] = now_s + 0.1, steps[holder] + 1
        floor.settle(now_s)
        floor.parked(holder, steps[holder], now_s)
    had = {job: floor.seen(now_s)[job].service_s - before[job] for job in (1, 2)}
    assert had[1] / sum(had.values()) == pytest.approx(0.75, abs=0.03)


def test_a_newcomer_shares_at_once_with_one_that_ran_alone_for_long() -> None:
    first, second = (GateJob(job=job, lanes=(LEFT,)) for job in (1, 2))
    floor = floor_of(first)
    floor.parked(1, 1, 0.0)
    floor.settle(0.0)
    floor.follow([first, second], Turns(), 0.0)
    floor.settle(0.0)
    floor.parked(2, 1, 1000.0)
    assert floor.settle(1000.0).flags[1]
    floor.parked(1, 9000, 1000.1)
    order: list[int] = []
    steps, now_s = {1: 9000, 2: 1}, 1000.1
    for _ in range(20):
        order += floor.settle(now_s).go
        now_s += 0.1
        steps[order[-1]] += 1
        floor.parked(order[-1], steps[order[-1]], now_s)
    assert order.count(1) == order.count(2) == 10


def test_srtf_measures_a_newcomer_and_gives_it_the_lane() -> None:
    long, short = (GateJob(job=job, lanes=(LEFT,), steps_total=total) for job, total in ((1, 1000), (2, 10)))
    floor = floor_of(long, turns=Turns(rule=TurnRule.SRTF))
    floor.stepping(1, 50, 0.0)
    assert floor.settle(0.0).flags == {1: False}
    floor.follow([long, short], floor.turns, 1.0)
    floor.parked(2, 1, 1.0)
    assert floor.settle(1.0).flags[1], "asked at once"
    floor.parked(1, 51, 1.1)
    ran, steps, now_s = [], {1: 51, 2: 1}, 1.1
    while steps[2] < 10:
        floor.settle(now_s)
        (holder,) = floor.holders()
        ran.append(holder)
        now_s += 0.1
        steps[holder] += 1
        floor.parked(holder, steps[holder], now_s)
    assert ran.count(1) <= 3, "no more than it takes to measure its steps"
    assert ran[-6:] == [2] * 6


def test_unknown_totals_go_last_under_srtf() -> None:
    floor = floor_of(
        GateJob(job=1, lanes=(LEFT,)), GateJob(job=2, lanes=(LEFT,), steps_total=10**9), turns=Turns(rule=TurnRule.SRTF)
    )
    park_all(floor, range(1, 3))
    assert floor.settle(0.0).go == [2]


def test_a_job_that_hangs_is_left_out_and_comes_back() -> None:
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in (1, 2)), bounds=GateTimeouts(yield_s=2.0))
    park_all(floor, range(1, 3))
    assert floor.settle(0.0).go == [1]
    orders = floor.settle(1.0)
    assert (orders.go, orders.flags[1], orders.next_s) == ([], True, 2.0)
    orders = floor.settle(2.0)
    assert orders.go == [2], "the lane goes on"
    assert orders.flags == {1: True, 2: False}, "who is left out is asked, who is alone with it runs freely"
    assert "job 1 was asked" in floor.messages()[0]
    assert floor.seen(3.0)[1].state == "ungated"
    floor.parked(1, 2, 3.0)
    assert floor.messages() == []
    assert floor.settle(3.0).flags[2], "it has its turns again"


def test_one_that_never_steps_is_reported_and_holds_no_other_up() -> None:
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in (1, 2)), bounds=GateTimeouts(first_step_s=60.0))
    floor.parked(1, 1, 0.0)
    assert floor.settle(0.0) == Orders([1], {1: False, 2: True}, None)
    assert floor.messages() == []
    floor.settle(60.0)
    assert floor.messages() == [
        "job 2 shares a lane and has reached no step boundary for 60 s: it runs beside its lane, without turns"
    ]


def test_a_server_that_needs_no_turn_gives_it_to_those_that_came() -> None:
    floor = floor_of(GateJob(job=1, lanes=(LEFT,), serves=True, answers=True), GateJob(job=2, lanes=(LEFT,)))
    floor.stepping(1, 5, 0.0)
    floor.parked(2, 1, 0.0)
    assert floor.settle(0.0).go == []
    floor.rests(1, 5, 0.1)
    assert floor.settle(0.1).go == [2]
    floor.parked(1, 5, 0.2)
    floor.rests(1, 5, 0.2)
    floor.parked(2, 2, 0.3)
    assert floor.settle(0.3).go == [1], "it has asked meanwhile"


@pytest.mark.parametrize("capacity", [79, 80])
def test_a_server_of_which_no_request_is_seen_runs_beside_its_lane_where_there_is_room(capacity: int) -> None:
    floor = GateState(bounds=GateTimeouts(silent_s=2.0))
    both = [
        GateJob(job=job, lanes=(LEFT,), serves=answers, answers=answers, memory=Memory(0, 40))
        for job, answers in ((1, True), (2, False))
    ]
    floor.follow(both, Turns(), 0.0, {0: capacity})
    floor.stepping(1, 0, 0.0)
    floor.parked(2, 1, 0.0)
    assert floor.settle(1.0).go == [], "it may load its model"
    floor.settle(1.0)
    has_room = capacity == 80
    orders = floor.settle(3.0)
    assert (orders.go, floor.seen(3.0)[1].state) == (([2], "ungated") if has_room else ([], "running"))
    if not has_room:
        return
    assert orders.flags == {1: False, 2: False}
    assert "answers without saying when a request comes" in floor.messages()[0]
    floor.has_answered(1)
    assert floor.settle(4.0).flags[1], "now it is worth while to ask it"
    floor.idle(1, 1, 4.0)
    assert floor.messages() == []


def test_jobs_that_run_at_once_are_parked_before_one_goes_on() -> None:
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in (1, 2)))
    for job in (1, 2):
        floor.stepping(job, 5, 0.0)
    assert floor.settle(0.0).flags == {1: True, 2: True}
    floor.parked(1, 6, 0.1)
    assert floor.settle(0.1).go == []
    floor.parked(2, 6, 0.2)
    assert len(floor.settle(0.2).go) == 1


def test_paused_jobs_park_and_stay() -> None:
    gate_job = GateJob(job=1, lanes=(LEFT,))
    floor = floor_of(gate_job)
    floor.stepping(1, 9, 0.0)
    paused = GateJob(job=1, lanes=(LEFT,), paused=True)
    floor.follow([paused], Turns(), 1.0)
    assert floor.settle(1.0).flags == {1: True}
    floor.parked(1, 10, 1.1)
    assert floor.settle(50.0).go == []
    assert floor.seen(50.0)[1].state == "paused"
    floor.follow([gate_job], Turns(), 60.0)
    assert floor.settle(60.0) == Orders([1], {1: False}, None)


def test_requests_go_before_training() -> None:
    serving = GateJob(job=2, lanes=(LEFT,), serves=True)
    floor = floor_of(GateJob(job=1, lanes=(LEFT,)), serving, turns=Turns(rule=TurnRule.FAIR, quantum_s=100.0))
    floor.parked(1, 1, 0.0)
    floor.idle(2, 1, 0.0)
    assert floor.settle(0.0).go == [1]
    assert not floor.settle(0.5).flags[1]
    floor.parked(2, 1, 1.0)
    assert floor.settle(1.0).flags[1], "training gives way within its quantum"
    floor.parked(1, 2, 1.1)
    assert floor.settle(1.1).go == [2]
    floor.idle(2, 2, 1.2)
    assert floor.settle(1.2).go == [1]


def test_a_gang_takes_all_its_lanes_or_none() -> None:
    gang = GateJob(job=1, lanes=(LEFT, RIGHT))
    floor = floor_of(gang, GateJob(job=2, lanes=(LEFT,)), GateJob(job=3, lanes=(RIGHT,)))
    park_all(floor, range(1, 4))
    ran: dict[int, int] = dict.fromkeys((1, 2, 3), 0)
    steps = dict.fromkeys((1, 2, 3), 1)
    now_s = 0.0
    for _ in range(60):
        for job in floor.settle(now_s).go:
            ran[job] += 1
        now_s += 0.1
        for job in list(floor.holders()):
            steps[job] += 1
            floor.parked(job, steps[job], now_s)
    assert ran[2] == ran[3]
    assert ran[1] == pytest.approx(ran[2], abs=2), "it is not starved"


LANES: list[tuple[Lane, ...]] = [(LEFT,), (RIGHT,), (LEFT, RIGHT)]


class FloorMachine(RuleBasedStateMachine):
    """Jobs come, park, run, hang, die, and are paused at random."""

    @initialize(turn_rule=st.sampled_from(TurnRule), quantum_s=st.sampled_from([0.0, 1.0]))
    def begin(self, turn_rule: TurnRule, quantum_s: float) -> None:
        self.turns = Turns(rule=turn_rule, quantum_s=quantum_s)
        self.floor = GateState(bounds=GateTimeouts(yield_s=5.0, first_step_s=20.0))
        self.gate_jobs: dict[int, GateJob] = {}
        self.steps: dict[int, int] = {}
        self.now_s = 0.0
        self.settle()

    def settle(self) -> None:
        self.orders = self.floor.settle(self.now_s)

    def follow(self) -> None:
        self.floor.follow(list(self.gate_jobs.values()), self.turns, self.now_s)
        self.settle()

    @precondition(lambda self: len(self.gate_jobs) < 5)
    @rule(
        lanes=st.sampled_from(LANES),
        weight=st.sampled_from([1.0, 2.0]),
        serves=st.booleans(),
        total=st.none() | st.just(50),
    )
    def arrive(self, lanes: tuple[Lane, ...], weight: float, serves: bool, total: int | None) -> None:
        job = len(self.steps) + 1
        self.steps[job] = 0
        self.gate_jobs[job] = GateJob(job=job, lanes=lanes, weight=weight, serves=serves, steps_total=total)
        self.follow()

    @precondition(lambda self: self.gate_jobs)
    @rule(data=st.data(), what=st.sampled_from(["park", "idle", "seen", "die", "end", "pause"]))
    def happen(self, data: st.DataObject, what: str) -> None:
        job = data.draw(st.sampled_from(sorted(self.gate_jobs)))
        if what in {"park", "idle"}:
            self.steps[job] += 1
            (self.floor.parked if what == "park" else self.floor.idle)(job, self.steps[job], self.now_s)
        elif what == "seen":
            self.floor.stepping(job, self.steps[job], self.now_s)
        elif what == "die":
            self.floor.away(job, self.now_s)
        elif what == "end":
            del self.gate_jobs[job]
            self.follow()
        else:
            known = self.gate_jobs[job]
            self.gate_jobs[job] = GateJob(
                job=job,
                lanes=known.lanes,
                weight=known.weight,
                serves=known.serves,
                paused=not known.paused,
            )
            self.follow()
        self.settle()

    @rule(seconds=st.sampled_from([0.1, 2.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.settle()

    @invariant()
    def no_job_waits_for_a_free_lane(self) -> None:
        if not hasattr(self, "floor"):
            return
        held = {lane for lanes in self.floor.holders().values() for lane in lanes}
        states = {job: seen.state for job, seen in self.floor.seen(self.now_s).items()}
        first = [job for job, state in states.items() if state == "waiting" and self.floor.wants(job)]
        stuck = [job for job in first if held.isdisjoint(self.gate_jobs[job].lanes)]
        claimed = {lane for job in first if job not in stuck for lane in self.gate_jobs[job].lanes}
        assert all(not claimed.isdisjoint(self.gate_jobs[job].lanes) for job in stuck), "a lane is free and wanted"

    @invariant()
    def shares_are_shares(self) -> None:
        if hasattr(self, "floor"):
            for seen in self.floor.seen(self.now_s).values():
                assert 0 <= seen.share_ratio <= 1
                assert math.isfinite(seen.service_s + seen.wait_s)

    def teardown(self) -> None:
        """Whoever holds comes to its boundary in the end: then everybody who waits gets a turn."""
        if not hasattr(self, "floor"):
            return
        waiting = {job for job in self.gate_jobs if self.floor.wants(job)}
        self.turns = Turns(rule=TurnRule.FAIR)
        self.gate_jobs = {job: GateJob(job=job, lanes=gate_job.lanes) for job, gate_job in self.gate_jobs.items()}
        self.follow()
        served = set(self.orders.go)
        for _ in range(20 * len(self.gate_jobs)):
            self.now_s += 0.1
            for job in list(self.floor.holders()):
                self.steps[job] += 1
                self.floor.parked(job, self.steps[job], self.now_s)
            self.settle()
            served |= set(self.orders.go)
        assert waiting <= served | set(self.floor.holders())


TestFloor = FloorMachine.TestCase
TestFloor.settings = settings(examples(40), stateful_step_count=25)


@examples(15)
@given(st.lists(st.sampled_from([0.01, 0.1, 0.5]), min_size=2, max_size=4))
def test_unequal_steps_still_give_equal_shares(lengths: list[float]) -> None:
    jobs = range(1, len(lengths) + 1)
    floor = floor_of(*(GateJob(job=job, lanes=(LEFT,)) for job in jobs))
    park_all(floor, jobs)
    run(floor, 40.0, dict(zip(jobs, lengths, strict=True)))
    seen = floor.seen(40.0)
    assert all(seen[job].share_ratio == pytest.approx(1 / len(lengths), abs=0.05) for job in jobs)
