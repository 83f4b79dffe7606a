"""The story of a job is bounded, and what it would tell is kept in fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from colane.core.lifecycle import MOVES, PHASES, move, moves
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, JobState, Leaving, OnHost, Parking, SuspendVia, Suspension
from colane.model.phases import NONE, NOT_YET, STORY_FIRST, STORY_LAST, Halted, Hold, HoldKind, StateChange
from colane.model.placement import Placement, Slot
from colane.model.reason import Reason, Why

QUEUED = StateChange(0.0, JobState.QUEUED, Reason(Why.SUBMITTED))
PATH = (
    (JobState.ASSIGNED, Reason(Why.FREE_GPU, {"gpu": "n0/0"})),
    (JobState.LAUNCHING, Reason(Why.LAUNCHED, {"pid": 1, "node": "n0"})),
    (JobState.RUNNING, Reason(Why.TAKEN_TO_RUN)),
)


def make_job() -> Job:
    return Job(JobId(1), JobSpec(name="a", family="vgg"), 0.0, reason=QUEUED.reason, story=(QUEUED,))


def test_a_long_story_keeps_its_beginning_and_its_end() -> None:
    job, told = make_job(), [QUEUED]
    for round_s in range(1, 41):
        for to, reason in (*PATH, (JobState.QUEUED, Reason(Why.NODE_LOST, {"node": "n0"}))):
            job = move(job, to, float(round_s), reason)
            told.append(StateChange(float(round_s), to, reason))
            assert (job.reason, job.changes) == (reason, len(told))
            assert job.changes_since(len(told) - 2) == tuple(told[-2:])
    assert job.story == (*told[:STORY_FIRST], *told[-STORY_LAST:])
    assert job.story_left_out == len(told) - STORY_FIRST - STORY_LAST
    assert job.changes_since(len(told)) == ()


def test_time_paused_is_that_of_the_present_attempt() -> None:
    running = moves(make_job(), 10.0, PATH)
    paused = move(running, JobState.PAUSED, 12.0, Reason(Why.SUSPENDED, {"by": "ann"}))
    again = move(paused, JobState.PAUSED, 15.0, Reason(Why.NOT_MOVED, {"problem": "no room", "was": ""}))
    assert (running.run.assigned_s, running.paused_s(11.0), again.paused_s(20.0)) == (10.0, 0.0, 8.0)
    resumed = move(again, JobState.RUNNING, 30.0, Reason(Why.RESUMED, {"by": "ann"}))
    assert resumed.paused_s(99.0) == 18.0
    twice = move(resumed, JobState.PAUSED, 40.0, Reason(Why.SUSPENDED, {"by": "ann"}))
    lost = move(twice, JobState.QUEUED, 41.0, Reason(Why.NODE_LOST, {"node": "n0"}))
    assert lost.paused_s(99.0) == 19.0
    assert moves(lost, 50.0, PATH).paused_s(99.0) == 0.0


def test_a_move_takes_away_what_does_not_belong_to_the_new_state() -> None:
    phases: dict[str, Any] = {
        "holds": (Hold(HoldKind.USER, "ann"),),
        "halted": Halted(JobState.RUNNING, Placement((Slot(GpuId("n0", 0), 0),)), NOT_YET, NONE),
        "suspension": Suspension(SuspendVia.HOST, "ann"),
        "leaving": Leaving(JobState.QUEUED),
        "parking": Parking(),
        "on_host": OnHost(1),
    }
    assert phases.keys() == PHASES.keys()
    for state, to in MOVES:
        job = replace(make_job(), state=state, **phases)
        moved = move(job, to, 1.0, Reason(Why.SUBMITTED))
        assert {name for name in phases if getattr(moved, name)} == {name for name in PHASES if to in PHASES[name]}
