"""How long turns last: so long that passing them on takes 1 % of the time at most, as measured between the jobs."""

from __future__ import annotations

import pytest

from colane.agent.gate.handoff import RECENT, Handoffs
from colane.agent.gate.rules import GateState
from colane.agent.gate.values import GateJob, TurnTimes
from colane.lanes.turns import QUANTUM_MAX_S, quantum_s
from colane.model.placement import TurnRule, Turns

LANE, OTHER = (0, 0), (0, 1)


def test_a_turn_lasts_a_hundred_handoffs_unless_it_is_set() -> None:
    assert quantum_s(Turns(), 0.0002) == pytest.approx(0.0198)
    assert 0.0002 / (0.0002 + quantum_s(Turns(), 0.0002)) == pytest.approx(0.01)
    assert quantum_s(Turns(), None) == 0.0, "one step, while nothing is known"
    assert quantum_s(Turns(), 0.1) == QUANTUM_MAX_S
    assert quantum_s(Turns(quantum_s=0.0), 0.1) == 0.0
    assert quantum_s(Turns(quantum_s=2.0), 0.1) == 2.0


class Lane:
    """Two jobs that pass one lane on: steps of 2 ms, half a millisecond between turns."""

    step_s, gap_s = 0.002, 0.0005

    def __init__(self, turns: Turns | None = None) -> None:
        self.floor = GateState()
        self.floor.follow([GateJob(job=job, lanes=(LANE,)) for job in (1, 2)], turns or Turns(), 0.0)
        self.now_s, self.steps, self.resumed_s = 100.0, {1: 1, 2: 1}, {1: 0.0, 2: 0.0}
        for job in (1, 2):
            self.floor.parked(job, 1, self.now_s, TurnTimes(self.now_s, 0.0))
        self.floor.settle(self.now_s)

    def turn(self) -> tuple[int, int]:
        """Let the holder run until it gives its turn up; who that was, and how many steps it made."""
        (holder,) = self.floor.holders()
        self.resumed_s[holder] = self.now_s = self.now_s + self.gap_s
        made = 0
        while made == 0 or not self.floor.settle(self.now_s).flags[holder]:
            self.now_s += self.step_s
            made += 1
        self.steps[holder] += made
        self.floor.parked(holder, self.steps[holder], self.now_s, TurnTimes(self.now_s, self.resumed_s[holder]))
        self.floor.settle(self.now_s)
        return holder, made


def test_short_steps_are_made_many_to_a_turn_so_that_little_is_lost() -> None:
    lane = Lane()
    first = [lane.turn() for _ in range(3)]
    assert [made for _, made in first[:2]] == [1, 1], "nothing is known yet"
    later = [lane.turn() for _ in range(20)]
    seen = lane.floor.seen(lane.now_s)[1]
    assert seen.handoff_s == pytest.approx(0.0005)
    assert seen.quantum_s == pytest.approx(0.0495)
    assert {made for _, made in later[4:]} <= {25, 26}
    assert sum(job == 1 for job, _ in later) == 10
    spent_s = sum(made * lane.step_s for _, made in later[4:])
    assert 16 * lane.gap_s / (16 * lane.gap_s + spent_s) <= 0.0101


def test_steps_that_are_long_already_are_passed_on_one_by_one() -> None:
    lane = Lane()
    lane.step_s = 0.06
    assert [lane.turn()[1] for _ in range(10)] == [1] * 10


@pytest.mark.parametrize("rule", [TurnRule.FAIR, TurnRule.RR])
def test_what_is_set_holds(rule: TurnRule) -> None:
    lane = Lane(Turns(rule=rule, quantum_s=0.0))
    assert [lane.turn()[1] for _ in range(10)] == [1] * 10


def test_only_what_passes_from_job_to_job_in_a_lane_is_counted() -> None:
    known = Handoffs()
    known.yielded(1, (LANE,), TurnTimes(10.0, 0.0))
    known.granted(1, (LANE,))  # no other was ready
    known.granted(3, (OTHER,))
    known.settled()
    known.granted(2, (LANE,))  # it came to an idle lane
    for job in (1, 2, 3):
        known.yielded(job, (LANE,), TurnTimes(11.0, 10.5))
        known.settled()
    assert known.mean_s((LANE, OTHER)) is None
    known.yielded(1, (LANE,), TurnTimes(20.0, 0.0))
    known.granted(2, (LANE,))
    known.yielded(2, (LANE,), TurnTimes(29.0, 27.0))
    assert known.mean_s((LANE,)) is None, "7 s are no handoff"
    known.granted(1, (LANE,))
    known.yielded(1, (LANE,), TurnTimes(29.5, 28.0))
    assert known.mean_s((LANE,)) is None, "the clocks are not the same"


def test_the_latest_handoffs_count_and_lanes_that_are_gone_do_not() -> None:
    known, now_s = Handoffs(), 10.0
    for took_s in [0.5] * 5 + [0.25] * RECENT:
        for one, other in ((1, 2), (2, 1)):
            known.yielded(one, (LANE,), TurnTimes(now_s, now_s - 5.0))
            known.granted(other, (LANE,))
            now_s += took_s
            known.yielded(other, (LANE,), TurnTimes(now_s, now_s))
            known.settled()
    assert known.mean_s((LANE,)) == pytest.approx(0.25)
    assert known.mean_s((LANE, OTHER)) == pytest.approx(0.25)
    known.forget((1, 2), (OTHER,))
    assert known.mean_s((LANE,)) is None
