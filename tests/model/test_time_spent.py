"""Where a job's time has gone adds up to its life."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.phases import STORY_MAX, JobState, StateChange, shorter_story
from colane.model.reason import Reason, Why
from colane.model.time_spent import TimeSpent, time_spent

S = JobState


def story(*changes: tuple[float, JobState]) -> tuple[StateChange, ...]:
    return tuple(StateChange(at_s, state, Reason(Why.SUBMITTED)) for at_s, state in changes)


def test_each_state_counts_to_its_time() -> None:
    told = story(
        (0, S.QUEUED), (5, S.ASSIGNED), (6, S.LAUNCHING), (9, S.RUNNING_PROTECTED), (20, S.RUNNING), (30, S.PAUSED),
        (34, S.RUNNING), (40, S.CHECKPOINTING), (43, S.STOPPING), (44, S.QUEUED), (50, S.ASSIGNED), (51, S.LAUNCHING),
        (53, S.RUNNING), (60, S.SUCCEEDED),
    )  # fmt: skip
    assert time_spent(told, 0, 60.0) == TimeSpent(11.0, 7.0, 34.0, 4.0, 4.0)
    assert time_spent(told[:1], 0, 7.0) == TimeSpent(queueing_s=7.0)
    assert time_spent((), 0, 7.0) == TimeSpent(), "a record of before there were stories"


def test_a_job_taken_to_run_was_launching_until_its_first_step_if_one_came() -> None:
    taken, stepping = Reason(Why.TAKEN_TO_RUN), Reason(Why.STEPPING)
    first = (*story((0, S.LAUNCHING)), StateChange(10.0, S.RUNNING, taken))
    assert time_spent(first, 0, 40.0) == TimeSpent(launching_s=10.0, running_s=30.0)
    late = (*first, StateChange(25.0, S.RUNNING_PROTECTED, stepping))
    assert time_spent(late, 0, 40.0) == TimeSpent(launching_s=25.0, running_s=15.0)


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.sampled_from(S)), min_size=1, max_size=150))
def test_it_adds_up_whatever_is_left_out(steps: list[tuple[float, JobState]]) -> None:
    at_s, changes = 0.0, []
    for took_s, state in steps:
        changes.append((at_s, state if state in time_states() else S.RUNNING))
        at_s += took_s
    told = story(*changes)
    told, left_out = shorter_story(told, 0) if len(told) > STORY_MAX else (told, 0)
    assert sum(time_spent(told, left_out, at_s)) == pytest.approx(at_s)


def time_states() -> set[JobState]:
    """States that time is counted in."""
    return set(S) - {S.SUCCEEDED, S.FAILED, S.OUT_OF_MEMORY, S.TIMED_OUT, S.CANCELLED}
