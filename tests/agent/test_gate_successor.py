"""Who goes on next is known while the holder still runs, and is the one that the rules let go."""

from __future__ import annotations

import copy
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.agent.gate.rules import NOT_BOUNDED, GateState
from colane.agent.gate.values import GateJob
from colane.model.placement import TurnRule, Turns
from tests.examples import examples

LANE, OTHER = (0, 0), (1, 0)
STEP_S = 0.5


def floor_of(turns: Turns, *gate_jobs: GateJob) -> GateState:
    """All wait at their first boundary; the first has its turn."""
    floor = GateState()
    floor.follow(gate_jobs, turns, 0.0)
    for gate_job in gate_jobs:
        floor.parked(gate_job.job, 1, 0.0)
    assert floor.settle(0.0).go == [1]
    return floor


def three(**first: object) -> tuple[GateJob, ...]:
    return tuple(GateJob(job=job, lanes=(LANE,), **(first if job == 1 else {})) for job in (1, 2, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [TurnRule.FAIR, TurnRule.RR])
@pytest.mark.parametrize("quantum_s", [0.0, 0.4])
def test_the_next_in_order_follows_once_the_turn_is_over(rule: TurnRule, quantum_s: float) -> None:
    floor = floor_of(Turns(rule=rule, quantum_s=quantum_s), *three())
    floor.settle(STEP_S)
    found = floor.successor(1, 2, STEP_S)
    assert found is not None
    assert (found.job, found.flag) == (2, quantum_s == 0.0)
    floor.parked(1, 2, STEP_S)
    assert floor.settle(STEP_S).go == [2]


def test_no_successor_before_the_holder_is_asked_nor_where_it_goes_on_itself() -> None:
    floor = floor_of(Turns(rule=TurnRule.FAIR, quantum_s=0.4), *three(weight=10.0))
    assert floor.successor(1, 2, 0.1) is None, "its turn is not over"
    floor.parked(1, 2, STEP_S)
    assert floor.settle(STEP_S).go == [2]
    for job in (2, 3):
        floor.settle(job * STEP_S)
        floor.parked(job, 2, job * STEP_S)
        floor.settle(job * STEP_S)
    assert list(floor.holders()) == [1]
    floor.settle(2.0)
    assert floor.successor(1, 3, 2.0) is None, "it has less than its share still"
    floor.parked(1, 3, 2.0)
    assert floor.settle(2.0).go == [1]


def test_no_successor_under_srtf_where_the_turn_itself_says_what_remains() -> None:
    floor = floor_of(Turns(rule=TurnRule.SRTF, quantum_s=0.0), *three(steps_total=100))
    floor.settle(STEP_S)
    assert floor.successor(1, 2, STEP_S) is None


@pytest.mark.parametrize("what", ["newcomer", "hangs up", "ends", "left out"])
def test_whatever_happens_meanwhile_it_is_chosen_anew(what: str) -> None:
    gate_jobs = three()
    floor = floor_of(Turns(rule=TurnRule.FAIR, quantum_s=0.0), *gate_jobs)
    floor.settle(STEP_S)
    assert floor.successor(1, 2, STEP_S) is not None
    if what == "newcomer":
        floor.follow([*gate_jobs, GateJob(job=4, lanes=(LANE,), serves=True)], floor.turns, STEP_S)
        floor.parked(4, 1, STEP_S)
    elif what == "hangs up":
        floor.stepping(2, 1, STEP_S)
    elif what == "ends":
        floor.drop(2, STEP_S)
    else:
        floor.settle(STEP_S + 2 * floor.bounds.yield_s)
    assert floor.successor(1, 2, STEP_S) is None
    floor.settle(STEP_S)
    found = floor.successor(1, 2, STEP_S)
    assert (found.job if found else None) == {"newcomer": 4, "ends": 3}.get(what)


def test_a_gang_that_waits_for_two_lanes_follows_when_the_last_is_free() -> None:
    left, right = GateJob(job=1, lanes=(LANE,)), GateJob(job=2, lanes=(OTHER,))
    floor = GateState()
    floor.follow([left, right, GateJob(job=3, lanes=(LANE, OTHER))], Turns(rule=TurnRule.FAIR, quantum_s=0.0), 0.0)
    for job in (1, 2, 3):
        floor.parked(job, 1, 0.0)
    assert floor.settle(0.0).go == [1, 2]
    floor.settle(STEP_S)
    assert floor.successor(1, 2, STEP_S) is None, "job 2 has a lane of the gang still"
    floor.parked(1, 2, STEP_S)
    assert floor.settle(STEP_S).go == []
    found = floor.successor(2, 2, 2 * STEP_S)
    assert found is not None
    assert found.job == 3


LANES = [(LANE,), (LANE,), (OTHER,), (LANE, OTHER)]
foretold: Counter[TurnRule] = Counter()


def random_gate_job(job: int, random: Random) -> GateJob:
    return GateJob(
        job=job,
        lanes=random.choice(LANES),
        weight=random.choice((1.0, 3.0)),
        priority=random.choice((0, 1)),
        serves=random.random() < 0.1,
        steps_total=random.choice((None, 50)),
        paused=random.random() < 0.1,
    )


def park(floor: GateState, job: int, steps: int, now_s: float) -> GateState:
    """Park one; the floor on which its successor went on ahead stands as the one on which it waited for the rules."""
    ahead = copy.deepcopy(floor, {id(NOT_BOUNDED): NOT_BOUNDED})
    found = floor.successor(job, steps, now_s)
    floor.parked(job, steps, now_s)
    go, flags, next_s = floor.settle(now_s)
    if found is None:
        return floor
    foretold[floor.turns.rule] += 1
    ahead.parked(job, steps, now_s)
    ahead.passed_on(found.job, now_s)
    later = ahead.settle(now_s)
    assert sorted([found.job, *later.go]) == sorted(go)
    assert (later.flags, later.next_s, ahead.holders()) == (flags, next_s, floor.holders())
    assert ahead.seen(now_s + 1.0) == floor.seen(now_s + 1.0)
    return ahead


@examples(100)
@given(st.integers(0, 2**32), st.sampled_from(TurnRule), st.sampled_from([0.0, 1.0, None]))
def test_the_job_that_goes_ahead_is_the_one_the_rules_let_go(
    seed: int, rule: TurnRule, quantum_s: float | None
) -> None:
    random, floor, now_s = Random(seed), GateState(), 0.0
    gate_jobs = [random_gate_job(job, random) for job in range(1, random.randint(3, 6))]
    steps = dict.fromkeys(range(1, 7), 1)
    for _ in range(60):
        if random.random() < 0.1:
            gate_jobs = [
                random_gate_job(gate_job.job, random) if random.random() < 0.3 else gate_job for gate_job in gate_jobs
            ]
            floor.follow(gate_jobs, Turns(rule=rule, quantum_s=quantum_s), now_s)
        floor.settle(now_s)
        now_s += random.choice((0.01, 0.3, 1.1))
        who = random.choice([*floor.holders(), random.choice(gate_jobs).job])
        steps[who] += random.randint(0, 3)
        floor = park(floor, who, steps[who], now_s)


def test_every_rule_but_one_foretells() -> None:
    """By the examples above, where they ran before."""
    test_the_job_that_goes_ahead_is_the_one_the_rules_let_go()
    assert set(TurnRule) - set(foretold) == {TurnRule.SRTF}
