"""Who is suspected of computing in the turns of others, who is looked at, and what comes of it."""

from __future__ import annotations

import pytest

from colane.agent.gate.audit import CHECK_S, CLEARED_S, WINDOWS, TurnAudit
from colane.agent.gate.rules import GateState
from colane.agent.gate.values import GateJob, Seen
from colane.model.placement import Turns
from colane.model.profile import Memory


def follow(audit: TurnAudit, windows: int, busy: float, turn: float, from_s: float = 0.0) -> float:
    """Let windows of a second pass; gives the time then."""
    for second in range(windows):
        seen = {1: Seen("running", (from_s + second) * turn, 0.0, turn)}
        audit.look(from_s + second, seen, {1: busy}, [1])
    return from_s + windows


def look_at(audit: TurnAudit, busy: float, from_s: float) -> None:
    for ago_s in (0.0, CHECK_S, CHECK_S + 1.0):
        if audit.is_checked(1):
            audit.look(from_s + ago_s, {1: Seen("paused", 0.0, 0.0, 0.5, is_parked=True)}, {1: busy}, [1])


@pytest.mark.parametrize(("busy", "turn"), [(0.5, 0.5), (0.53, 0.5), (0.2, 0.5), (1.0, 1.0)])
def test_a_job_whose_kernels_run_in_its_turns_is_looked_at_once(busy: float, turn: float) -> None:
    audit = TurnAudit()
    now_s = follow(audit, 2 * WINDOWS + 2, busy, turn)
    assert audit.is_checked(1)
    look_at(audit, 0.0, now_s)
    follow(audit, 2 * int(CLEARED_S), busy, turn, now_s + CHECK_S)
    assert (audit.is_checked(1), audit.found) == (False, {})
    answers = TurnAudit()
    for second in range(100):
        answers.look(float(second), {1: Seen("running", second * turn, 0.0, turn, answers=True)}, {1: busy}, [1])
    assert not answers.is_checked(1), "requests would wait"
    none = TurnAudit()
    follow(none, 100, 0.0, 0.0)
    assert not none.is_checked(1), "it has not begun"


def test_jobs_are_looked_at_one_after_the_other() -> None:
    audit = TurnAudit()
    for second in range(100):
        seen = {job: Seen("running", second * 0.5, 0.0, 0.5) for job in (1, 2)}
        audit.look(float(second), seen, {1: 0.4, 2: 0.4}, [1, 2])
    assert [audit.is_checked(job) for job in (1, 2)] == [True, False]


@pytest.mark.parametrize(
    ("told", "is_found"),
    [
        ((0.3,), None), ((0.01,), None), ((0.0,), False), ((0.3, 0.3), True), ((0.01, 0.01), True),
        ((0.01, 0.0), False),
    ],
)  # fmt: skip
def test_a_leak_that_hides_in_turns_that_are_not_full_is_found_from_the_hundredth_on_that_is_told_twice(
    told: tuple[float, ...], is_found: bool | None
) -> None:
    """A sample may have caught the end of what ran before the job stood: one alone is doubted, None here."""
    audit = TurnAudit()
    now_s = follow(audit, 2 * WINDOWS + 2, 0.4 + told[0], 0.5)
    stands = {1: Seen("paused", 0.0, 0.0, 0.5, is_parked=True)}
    for ago_s, busy in enumerate((0.3, 0.3, 0.3, *told)):
        audit.look(now_s + ago_s, stands, {1: busy}, [1])
    assert (1 in audit.found, audit.is_checked(1)) == (is_found is True, is_found is None)


def test_one_that_runs_while_it_waits_is_found() -> None:
    audit = TurnAudit()
    now_s = follow(audit, WINDOWS + 2, 0.7, 0.5)
    assert audit.is_checked(1)
    look_at(audit, 0.2, now_s)
    assert "ran 20 % of the time" in audit.found[1]
    audit.look(now_s + 9, {}, {}, [2])
    assert audit.found == {}, "it has ended"


def test_one_that_stands_still_while_it_is_looked_at_is_left_alone_for_a_while() -> None:
    audit = TurnAudit()
    now_s = follow(audit, WINDOWS + 2, 0.7, 0.5)
    look_at(audit, 0.0, now_s)
    assert (audit.is_checked(1), audit.found) == (False, {})
    now_s = follow(audit, int(CLEARED_S) - 10, 0.7, 0.5, now_s + CHECK_S)
    assert not audit.is_checked(1)
    follow(audit, 20, 0.7, 0.5, now_s)
    assert audit.is_checked(1)


def test_where_the_driver_tells_nothing_nobody_is_suspected() -> None:
    audit = TurnAudit()
    for second in range(20):
        audit.look(float(second), {1: Seen("running", 0.0, 0.0, 0.5)}, {1: None}, [1])
    assert not audit.is_checked(1)


def test_one_that_is_found_is_let_go_and_the_other_has_the_lane() -> None:
    floor = GateState()
    jobs = [GateJob(job=job, lanes=((0, 0),)) for job in (1, 2)]
    floor.follow(jobs, Turns(), 0.0)
    for job in (1, 2):
        floor.parked(job, 1, 0.0)
    assert floor.settle(0.0).go == [1]
    floor.parked(1, 2, 1.0)
    found = GateJob(job=1, lanes=((0, 0),), leaks="computes")
    floor.follow([found, jobs[1]], Turns(), 1.0)
    orders = floor.settle(1.0)
    assert (sorted(orders.go), orders.flags) == ([1, 2], {1: False, 2: False})
    floor.stepping(1, 9, 2.0)
    assert (set(floor.holders()), floor.messages()) == ({2}, ["job 1 computes"])
    assert floor.seen(2.0)[1].state == "ungated"
    floor.drop(2, 3.0)
    floor.follow([found, jobs[1]], Turns(), 4.0)
    floor.settle(4.0)
    assert floor.seen(4.0)[1].state == "ungated", "also with the next"


def test_one_that_is_found_is_parked_and_goes_on_without_turns() -> None:
    floor = GateState()
    found, other = GateJob(job=1, lanes=((0, 0),), leaks="computes"), GateJob(job=2, lanes=((0, 0),))
    floor.follow([found, other], Turns(), 0.0)
    floor.parked(2, 1, 0.0)
    assert floor.settle(0.0).go == [2]
    floor.follow([GateJob(job=1, lanes=((0, 0),), leaks="computes", paused=True), other], Turns(), 1.0)
    assert floor.settle(1.0).flags[1]
    floor.parked(1, 5, 1.5)
    assert floor.settle(1.5).go == []
    assert floor.is_parked(1)
    floor.follow([found, other], Turns(), 2.0)
    assert floor.settle(2.0).go == [1]


def test_beside_one_that_is_found_a_job_without_room_waits() -> None:
    floor = GateState()
    sizes = Memory(100, 400)
    jobs = [GateJob(job=job, lanes=((0, 0),), memory=sizes) for job in (1, 2)]
    floor.follow(jobs, Turns(), 0.0, {0: 700})
    for job in (1, 2):
        floor.parked(job, 1, 0.0)
    found = GateJob(job=1, lanes=((0, 0),), memory=sizes, leaks="computes")
    floor.follow([found, jobs[1]], Turns(), 1.0, {0: 700})
    assert floor.settle(1.0).go == [1], "both steps together need 1000"
