"""Where a job's time has gone, by its story: paper E's accounting (Fig. 3), with pausing and saving apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from colane.model.phases import STORY_FIRST, JobState, StateChange


class TimeSpent(NamedTuple):
    """Seconds of a job's life from its submission to its end, or until now; they add up to it."""

    queueing_s: float = 0.0  # it waited for GPUs
    # it had GPUs and had made no step. Of one that makes none at all, until it was taken to run
    launching_s: float = 0.0
    running_s: float = 0.0  # it ran
    paused_s: float = 0.0  # it was suspended or parked
    checkpointing_s: float = 0.0  # it was asked to save its state, or was being stopped
    untold_s: float = 0.0  # in a long story's part that is not kept


BUCKETS: Final[Mapping[JobState, str]] = MappingProxyType(
    {
        JobState.QUEUED: "queueing_s",
        JobState.ASSIGNED: "launching_s",
        JobState.LAUNCHING: "launching_s",
        JobState.RUNNING_PROTECTED: "running_s",
        JobState.RUNNING: "running_s",
        JobState.PAUSED: "paused_s",
        JobState.CHECKPOINTING: "checkpointing_s",
        JobState.STOPPING: "checkpointing_s",
    }
)
"""Which time a state counts to; states that nothing leaves count to none."""


def _went_to(change: StateChange, following: StateChange | None) -> str | None:
    """What time in a state went to; a job that was taken to run before its first step was still launching."""
    is_late = following is not None and following.state is JobState.RUNNING_PROTECTED
    was_early = change.state is JobState.RUNNING and is_late  # the one way back there is that of a late first step
    return "launching_s" if was_early else BUCKETS.get(change.state)


def time_spent(story: Sequence[StateChange], left_out: int, until_s: float) -> TimeSpent:
    """Where the time has gone.

    Args:
        story: Of the job, its submission first.
        left_out: Changes that are left out of it after its first ones.
        until_s: When it ended, or now.
    """
    found: dict[str, float] = {}
    for place, change in enumerate(story):
        following = story[place + 1] if place + 1 < len(story) else None
        is_gap = left_out > 0 and place == STORY_FIRST - 1
        name = "untold_s" if is_gap else _went_to(change, following)
        if name is not None:
            end_s = until_s if following is None else following.at_s
            found[name] = found.get(name, 0.0) + max(0.0, end_s - change.at_s)
    return TimeSpent(**found)
