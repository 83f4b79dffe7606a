"""States of a job's life, and the story it makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, final

from colane.model.reason import Reason


class JobState(StrEnum):
    """States of a job's life; `core.lifecycle` holds the moves between them."""

    QUEUED = "queued"
    ASSIGNED = "assigned"
    LAUNCHING = "launching"
    RUNNING_PROTECTED = "running-protected"
    RUNNING = "running"
    PAUSED = "paused"
    CHECKPOINTING = "checkpointing"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUT_OF_MEMORY = "out-of-memory"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"


ENDED = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.OUT_OF_MEMORY,
        JobState.TIMED_OUT,
        JobState.CANCELLED,
    }
)
"""States nothing leaves."""

LEAVING = frozenset({JobState.CHECKPOINTING, JobState.STOPPING})
"""States in which a job is on its way off GPUs that it still holds."""

MOVABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
"""Only these may be taken off their GPUs by a plan; the others are protected or on their way."""

STEPPING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})
"""States in which a job's processes do what they are for."""


class SuspendVia(StrEnum):
    """How a running job is kept from going on."""

    LANE = "lane"
    """It waits at a step boundary; its memory stays where it is, and its GPUs stay booked."""
    HOST = "host"
    """Its GPU memory is moved to the host besides, and its GPUs are free for others until it comes back."""


@final
@dataclass(unsafe_hash=True, slots=True)
class StateChange:
    """One line of a job's story."""

    at_s: Final[float]
    state: Final[JobState]
    reason: Final[Reason]


class Served(NamedTuple):
    """How long a job has run on so many GPUs of one type; 0 GPUs stands for as many as it asks for."""

    gpu_type: str
    run_s: float
    gpus: int = 0


class Exit(NamedTuple):
    """How a process ended: exactly one of code and signal is set, or neither when it never started."""

    code: int | None
    signal: int | None
    detail: str = ""


STORY_FIRST: Final = 16
STORY_LAST: Final = 48
"""A story keeps so many first and so many last changes: one of a job moved for weeks is no longer than others."""


def longer_story(
    story: tuple[StateChange, ...], left_out: int, more: Sequence[StateChange]
) -> tuple[tuple[StateChange, ...], int]:
    """A story with these changes, and how many it leaves out."""
    story = (*story, *more)
    excess = len(story) - STORY_FIRST - STORY_LAST
    if excess <= 0:
        return story, left_out
    return (*story[:STORY_FIRST], *story[-STORY_LAST:]), left_out + excess
