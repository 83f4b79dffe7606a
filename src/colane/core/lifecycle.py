"""The moves of a job's life, as data. A move outside the table is an error that tells the job's story.

`docs/reference/lifecycle.md` draws its diagram from this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from colane.model.job import ENDED, Attempt, Job, JobState
from colane.model.phases import LEAVING, STORY_MAX, StateChange, kinds, shorter_story
from colane.model.reason import Reason

S = JobState
ASSIGNED: Final = S.ASSIGNED
PAUSED: Final = S.PAUSED
QUEUED: Final = S.QUEUED

MOVES: Mapping[tuple[JobState, JobState], str] = MappingProxyType(
    {
        (S.QUEUED, S.ASSIGNED): "a plan gave it GPUs",
        (S.QUEUED, S.CANCELLED): "cancelled while it waited",
        (S.QUEUED, S.SUCCEEDED): "an array, and all its elements have succeeded",
        (S.QUEUED, S.FAILED): "an array, all its elements have ended, and one failed",
        (S.QUEUED, S.LAUNCHING): "its node is back, on which it was halted as it launched",
        (S.QUEUED, S.RUNNING_PROTECTED): "its node is back, on which it was halted",
        (S.QUEUED, S.RUNNING): "its node is back, on which it was halted",
        (S.QUEUED, S.PAUSED): "its node is back, on which it was halted while paused",
        (S.QUEUED, S.QUEUED): "suspended or resumed while it waited, or its time to begin has come",
        (S.ASSIGNED, S.LAUNCHING): "its process started",
        (S.ASSIGNED, S.STOPPING): "cancelled before its process started, or one of its nodes failed or is drained",
        (S.ASSIGNED, S.QUEUED): "its node was lost, or the start failed and may be tried again",
        (S.ASSIGNED, S.FAILED): "it could not be started",
        (S.ASSIGNED, S.SUCCEEDED): "it ended before its start was seen",
        (S.ASSIGNED, S.OUT_OF_MEMORY): "it ran out of memory before its start was seen",
        (S.ASSIGNED, S.CANCELLED): "cancelled, and its node was lost",
        (S.LAUNCHING, S.RUNNING_PROTECTED): "first step; changes wait until three launch times have passed",
        (S.LAUNCHING, S.RUNNING): "it reports no steps; taken to run",
        (S.LAUNCHING, S.LAUNCHING): "let out of the turns of its lane, or back in them",
        (S.LAUNCHING, S.STOPPING): "cancelled, over time or preempted while it launched",
        (S.LAUNCHING, S.QUEUED): "its node was lost, or it failed and may be tried again",
        (S.LAUNCHING, S.SUCCEEDED): "its process exited with 0",
        (S.LAUNCHING, S.FAILED): "its process failed",
        (S.LAUNCHING, S.OUT_OF_MEMORY): "it ran out of memory",
        (S.RUNNING_PROTECTED, S.RUNNING): "protection is over",
        (S.RUNNING_PROTECTED, S.RUNNING_PROTECTED): "another lane of its GPU; out of its lane's turns, or back in them",
        (S.RUNNING_PROTECTED, S.PAUSED): "suspended; it waits at a step boundary",
        (S.RUNNING_PROTECTED, S.STOPPING): "cancelled, over time, or done with the steps asked for",
        (S.RUNNING_PROTECTED, S.QUEUED): "its node was lost, it failed and may be tried again, or it saved late",
        (S.RUNNING_PROTECTED, S.SUCCEEDED): "its process exited with 0",
        (S.RUNNING_PROTECTED, S.FAILED): "its process failed",
        (S.RUNNING_PROTECTED, S.OUT_OF_MEMORY): "it ran out of memory",
        (S.RUNNING, S.RUNNING): "another lane or other cores; too slow with co-runners, no job may be stopped",
        (S.RUNNING, S.RUNNING_PROTECTED): "late first step; changes wait until three launch times have passed",
        (S.RUNNING, S.PAUSED): "suspended or parked; it waits at a step boundary",
        (S.PAUSED, S.RUNNING): "resumed, back from being parked, or its memory could not be moved for parking it",
        (S.PAUSED, S.RUNNING_PROTECTED): "back from being parked; changes wait for as long as after its launch",
        (S.PAUSED, S.PAUSED): "its GPU memory is moved to the host, could not be, or waits for its GPU to come back",
        (S.PAUSED, S.STOPPING): "cancelled, over time or preempted while paused",
        (S.PAUSED, S.QUEUED): "its node was lost while it was paused",
        (S.PAUSED, S.FAILED): "its process failed while paused",
        (S.PAUSED, S.SUCCEEDED): "its process exited with 0 while paused",
        (S.PAUSED, S.OUT_OF_MEMORY): "it ran out of memory while paused",
        (S.RUNNING, S.CHECKPOINTING): "it is resized, moved or preempted and saves its state first",
        (S.RUNNING_PROTECTED, S.CHECKPOINTING): "its node is drained within a time, and it saves its state first",
        (S.PAUSED, S.CHECKPOINTING): "it is preempted while paused, and saves its state first",
        (S.CHECKPOINTING, S.STOPPING): "its state is saved, its time to save is over, or it was cancelled",
        (
            S.CHECKPOINTING,
            S.RUNNING_PROTECTED,
        ): "it did not save, and keeps its size for a while; or it goes on as fewer ranks",
        (S.CHECKPOINTING, S.PAUSED): "it did not save its state, and is suspended",
        (S.CHECKPOINTING, S.QUEUED): "it has ended, its state saved; or it died or lost its node while it saved",
        (S.CHECKPOINTING, S.SUCCEEDED): "it finished while it saved",
        (S.CHECKPOINTING, S.FAILED): "its process failed while it saved",
        (S.CHECKPOINTING, S.OUT_OF_MEMORY): "it ran out of memory while it saved",
        (S.RUNNING, S.STOPPING): "cancelled, over time, preempted, resized, or done with the steps asked for",
        (S.RUNNING, S.QUEUED): "its node was lost, it failed and may be tried again, or it saved late",
        (S.RUNNING, S.SUCCEEDED): "its process exited with 0",
        (S.RUNNING, S.FAILED): "its process failed",
        (S.RUNNING, S.OUT_OF_MEMORY): "it ran out of memory",
        (S.STOPPING, S.STOPPING): "asked to be queued again while it was stopped for its time limit",
        (S.STOPPING, S.QUEUED): "its process is gone; it was preempted, is resized, or asked to be queued again",
        (S.STOPPING, S.CANCELLED): "its process is gone; it was cancelled",
        (S.STOPPING, S.TIMED_OUT): "its process is gone; it was over its time limit",
        (
            S.STOPPING,
            S.FAILED,
        ): "its node was lost too often, one of its nodes failed it, or it borrowed cores too often",
        (S.STOPPING, S.SUCCEEDED): "its process is gone; it had made the steps asked for, or left with 0 in time",
        (S.STOPPING, S.OUT_OF_MEMORY): "its processes on all nodes are gone; one had run out of memory",
    }
)

PHASES: Mapping[str, frozenset[JobState]] = MappingProxyType(
    {
        "holds": frozenset({S.QUEUED}),
        "halted": frozenset({S.QUEUED, S.STOPPING}),
        "suspension": frozenset({S.PAUSED, *LEAVING}),
        "leaving": LEAVING,
        "parking": frozenset({S.PAUSED, S.STOPPING}),
        "on_host": frozenset({S.PAUSED, S.STOPPING}),
    }
)
"""In which states a job may have which of these: a move to any other state takes it away."""


class InvalidMoveError(Exception):
    """A move the table does not have; its message is the job's story."""

    def __init__(self, job: Job, to: JobState) -> None:
        story = "; ".join(f"{move.at_s:.3f} {move.state} ({move.reason.why})" for move in job.story)
        super().__init__(f"job {job.id} may not move from {job.state} to {to}; its story: {story}")


def move(job: Job, to: JobState, at_s: float, reason: Reason) -> Job:
    """The job after a move, its story one line longer; see `moves`.

    Raises InvalidMoveError: the table has no such move.
    """
    return moves(job, at_s, ((to, reason),))


def noted(job: Job, at_s: float, reason: Reason) -> Job:
    """A copy of the job with this in its story where it runs; while it is assigned or saves it is unchanged."""
    return move(job, job.state, at_s, reason) if (job.state, job.state) in MOVES else job.copied()


def moves(job: Job, at_s: float, steps: Sequence[tuple[JobState, Reason]]) -> Job:
    """The job after several moves at one time, each allowed by the table after the one before it.

    It is a copy: other fields may be set in it before it is put anywhere. Raises InvalidMoveError: the table lacks one
    of them.
    """
    moved, told = job.copied(), list[StateChange]()
    state = job.state
    for to, reason in steps:
        if (state, to) not in MOVES:
            moved.state, moved.story = state, (*job.story, *told)
            raise InvalidMoveError(moved, to)
        if to is ASSIGNED or ((state is PAUSED) is not (to is PAUSED)):
            _note(moved, state, to, at_s)
        told.append(StateChange(at_s, to, reason, kinds(job.holds) if to is QUEUED else ()))
        state = to
    moved.state, moved.reason, moved.since_s = state, told[-1].reason, at_s
    _end_phases(moved)
    moved.story = (*job.story, *told)
    if len(moved.story) > STORY_MAX:
        moved.story, moved.story_left_out = shorter_story(moved.story, job.story_left_out)
    return moved


def isolated(job: Job) -> Job:
    """The job with its GPUs to itself from now on."""
    return job.under(job.constraints._replace(isolated=True))


def _note(moved: Job, old: JobState, to: JobState, at_s: float) -> None:
    """Keep as fields what the story would tell: when it was assigned, how long it was paused."""
    if old is PAUSED:
        moved.run = moved.run._replace(paused_before_s=moved.paused_s(at_s), paused_since_s=None)
    if to is ASSIGNED:
        moved.run = Attempt(assigned_s=at_s)
    elif to is PAUSED:
        moved.run = moved.run._replace(paused_since_s=at_s)


def _end_phases(moved: Job) -> None:
    """Written out, for every move comes by here."""
    state = moved.state
    if state is not QUEUED:
        moved.holds = ()
        if state is not S.STOPPING:
            moved.halted = None
    if state is PAUSED:
        moved.leaving = None
        return
    if state not in LEAVING:
        moved.suspension = moved.leaving = None
    if state is not S.STOPPING:
        moved.parking = moved.on_host = None


def ending_as(job: Job, ending: JobState) -> Job:
    """A job that leaves its GPUs, to another end."""
    other = without_halted(job)
    if job.leaving is not None:
        other.leaving = job.leaving._replace(ending=ending)
    return other


def without_halted(job: Job) -> Job:
    """A job whose halted attempt does not go on."""
    other = job.copied()
    other.halted = None
    return other


def not_resized(job: Job) -> Job:
    """A job that leaves its GPUs without a place to go on at."""
    other = job.copied()
    if job.leaving is not None:
        other.leaving = job.leaving._replace(resizes_to=None)
    return other


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.QUEUED.name}"]
    lines += [f"    {a.name} --> {b.name}: {why}" for (a, b), why in MOVES.items()]
    lines += [f"    {state.name} --> [*]" for state in S if state in ENDED]
    return "\n".join(lines)
