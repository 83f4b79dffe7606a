"""States of a job's life, and what belongs to some of them: each is a record, there while it lasts and gone after it.

`core.lifecycle` holds the moves between the states, says to which states each record belongs, and takes it away when
the job comes into another. What keeps a waiting job from starting is such a record too (`Hold`): a job that is held is
not in the queue that policies see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, NewType, final

from colane.model.placement import Placement
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


def is_in(state: str) -> str:
    """Return a state as it is said of a job: `is running`, `has failed`."""
    return f"has {state}" if state in {"succeeded", "failed"} else f"is {state}"


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.TIMED_OUT, JobState.CANCELLED})
"""States nothing leaves."""

LEAVING = frozenset({JobState.CHECKPOINTING, JobState.STOPPING})
"""States in which a job is on its way off GPUs that it still holds."""

COMING_UP = frozenset({JobState.ASSIGNED, JobState.LAUNCHING})
"""States in which a job has its GPUs, and has not begun."""

REQUEUEABLE = frozenset({JobState.QUEUED, JobState.TIMED_OUT})
"""Ends of its way off GPUs of which a job may be queued again."""
MOVABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
"""Only these may be taken off their GPUs by a plan; the others are protected or on their way."""

STEPPING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})
"""States in which a job's processes do what they are for."""


class SuspendVia(StrEnum):
    """How a running job is kept from going on."""

    LANE = "lane"  # it waits at a step boundary; its memory stays where it is, and its GPUs stay booked
    HOST = "host"  # its GPU memory is moved to the host besides, and its GPUs are free for others until it comes back


JobId = NewType("JobId", int)  # handed out in order of submission, so that order of arrival is order of id


Ordinals = tuple[int, int]
"""Elements of an array from one to another, both included, counted from 0 in order of their indexes."""


class Served(NamedTuple):
    """How long a job has run on so many GPUs of one type; 0 GPUs stands for as many as it asks for."""

    gpu_type: str
    run_s: float
    gpus: int = 0
    idle_s: float = 0.0  # part of it that left no work behind: launches, stops, and what was lost with a node


class Exit(NamedTuple):
    """How a process ended: exactly one of code and signal is set, or neither when it never started."""

    code: int | None
    signal: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Element:
    """Which element of which array a job is."""

    array: JobId  # id of the array
    index: int  # its index in it

    def __reduce__(self) -> tuple[object, ...]:
        """Compiled, a frozen record does not take its fields one by one, as pickle gives them."""
        return Element, (self.array, self.index)

    def __str__(self) -> str:
        """As people name it: `12[3]`."""
        return f"{self.array}[{self.index}]"


class Array(NamedTuple):
    """What an array knows of its elements, see `colane.model.arrays`."""

    indexes: str  # of all its elements, as text
    size: int  # how many it has
    throttle: int | None = None  # how many of them may run at once; None: any number
    pending: tuple[Ordinals, ...] = ()  # those that are no jobs of their own yet, in order
    cut: tuple[Ordinals, ...] = ()  # those that were cancelled before they were any, in order
    succeeded: int = 0  # how many have
    failed: int = 0  # how many have ended in another way without being cancelled
    cancelled: int = 0  # how many were cancelled, those that were never jobs included
    all_started: bool = False  # whether each has started, or has ended without
    is_cancelled: bool = False  # whether it was cancelled as a whole, so that it ends as that whatever its elements do


class Attempt(NamedTuple):
    """What is told of one attempt of a job: the next start begins a new one, in which nothing of this is left."""

    assigned_s: float | None = None  # when it was given GPUs
    start_s: float | None = None  # when its process started
    first_step_s: float | None = None  # when it made its first step
    launch_s: float | None = None  # how long its launch took, where it has gone on as fewer ranks since; else None
    paused_since_s: float | None = None  # since when it is PAUSED; None while it is not
    paused_before_s: float = 0.0  # how long it was PAUSED in all, before that
    saves_asked: int = 0  # how often it was asked to save its state before it is stopped
    host_refusal: str = ""  # why its agent could not move its memory to the host; empty where it was not refused
    ended_on: tuple[str, ...] = ()  # nodes from which its processes are gone, while others of its nodes still have some
    # whether those on one of several nodes were stopped, as far as is known, or have failed
    is_broken_off: bool = False
    began_s: float | None = None  # when its launch was over, where no step was seen; only simulations tell it
    went_on_s: float | None = None  # when it last went on after it had stood halted
    exit: Exit | None = None  # how its last process ended

    def ended(self, exit: Exit) -> Attempt:
        """The same, ended so."""
        return Attempt(*self[:-1], exit)


NOT_YET: Final = Attempt()  # of a job that was never started


class Totals(NamedTuple):
    """What the attempts of a job have come to, the present one not counted before it has ended."""

    served: tuple[Served, ...] = ()  # what they have had, by GPU type and number in their order
    # steps it had made when its last attempt was stopped, as far as was seen, if it saves its state
    steps_kept: int = 0
    lost_s: float = 0.0  # run time whose steps have to be repeated, or were, as far as was seen
    failures: int = 0  # attempts that failed by the job's own fault
    losses: int = 0  # how often it has lost the hardware it ran on
    preemptions: int = 0  # how often a plan has stopped it for another job
    saves_failed: int = 0  # how often it did not save its state when it was asked to
    sent_back: int = 0  # how often in a row agents have sent it back before it was started, for want of memory
    requeued: int = 0  # how often in a row it was asked to wait anew before it had run for long


NONE: Final = Totals()  # of a job that was never started


class FallBack(NamedTuple):
    """A job that was resized has not stepped at its new size: where it does not come up there, it goes back."""

    to: Placement  # where it ran before
    launches_failed: int = 0  # how often its launch has failed since


class Suspension(NamedTuple):
    """A user asked for a running job to stop stepping: it is PAUSED, unless it leaves its GPUs as well."""

    via: SuspendVia  # how it is kept from going on
    by: str  # the user who asked for it
    # it was parked because it used nothing, and goes on by itself once it comes to a step boundary
    until_step: bool = False


class Leaving(NamedTuple):
    """A job on its way off GPUs that it still holds: CHECKPOINTING or STOPPING."""

    ending: JobState  # the state it comes into once its processes are gone
    resizes_to: Placement | None = None  # where it goes on then; booked besides its placement
    for_job: JobId | None = None  # the job it is stopped for
    # whether it has its GPUs to itself from its next start on, because of what it is stopped for
    isolates: bool = False
    is_loss: bool = False  # whether it is stopped for the hardware it has lost: that is counted once it is gone
    # whether a process of it has ended by itself: those on its other nodes are stopped for that
    has_failed: bool = False
    # whether it is to be queued again at a user's word, or its own: its time limit does not end it
    is_requeued: bool = False
    # whether its own process has asked for that: it is queued again however that process ends
    is_own_wish: bool = False


class Parking(NamedTuple):
    """A plan wants a job off its GPUs while it lives on: it is PAUSED, and waits for GPUs once it has left them."""

    for_job: JobId | None = None  # the job it is parked for, until it is off its GPUs
    home: str = ""  # where alone it may go on while it waits, see `NeedClass.home`; empty while it holds its GPUs


class OnHost(NamedTuple):
    """The GPU memory of a job lies on the host; its GPUs are not booked."""

    size_bytes: int  # so much of it
    # jobs that were on its GPUs when its memory left them: it may come back next to these. None of them where it was
    # parked because of them
    left_beside: tuple[JobId, ...] = ()


@final
class Throttle(NamedTuple):
    """How a job without GPUs is held back, for training jobs on its node."""

    cores: tuple[int, ...]  # the cores it may use
    # cores it books and has given up: it gets them back, and no job with GPUs takes them meanwhile
    withheld: tuple[int, ...] = ()
    # part of the bandwidth of the memory behind its cores that it may use; 1 does not bound it
    bandwidth_ratio: float = 1.0


class Halted(NamedTuple):
    """The attempt of a job that waits because a node of it is silent: its processes stand there, halted.

    It goes on when all its nodes are there, as it was, unless the job, or another on its GPUs, was started meanwhile.
    """

    state: JobState  # what the job was
    placement: Placement  # where it stands
    run: Attempt  # of that attempt
    totals: Totals  # as they were
    cores: int | None = None  # it was to start with, see `Constraints`
    agents: tuple[str, ...] = ()  # of its nodes, in order
    uuids: tuple[str, ...] = ()  # of its GPUs, in order of rank
    throttle: Throttle | None = None  # as a job has it
    turn: str = ""  # the same
    suspension: Suspension | None = None  # the same
    parking: Parking | None = None  # the same
    on_host: OnHost | None = None  # the same


class DependsOn(StrEnum):
    """What a job must have done; Slurm's `afterok`, `afternotok`, `afterany` and `after`."""

    OK = "ok"  # it has succeeded
    FAIL = "fail"  # it has ended in any other way
    ANY = "any"  # it has ended
    START = "start"  # it has started, or has ended without


_TOLD: Final = {
    DependsOn.OK: "job {job} has succeeded",
    DependsOn.FAIL: "job {job} has failed",
    DependsOn.ANY: "job {job} has ended",
    DependsOn.START: "job {job} has started",
}


class Dependency(NamedTuple):
    """One condition."""

    on: DependsOn  # what must have happened
    job: int  # id of the job to which
    element: Element | None = None  # which element of which array that is; None of any other job

    def __str__(self) -> str:
        """As it is written: `ok:12`, or `ok:12[3]`."""
        return f"{self.on.value}:{self.element or self.job}"

    def told(self) -> str:
        """What is waited for, in words."""
        return _TOLD[self.on].format(job=self.element or self.job)

    def holds_for(self, state: JobState, *, has_started: bool) -> bool | None:
        """Whether it is true of a job in this state; None where that may still change, False where it never will."""
        has_ended = state in ENDED
        if self.on is DependsOn.START:
            return True if has_started or has_ended else None
        if not has_ended:
            return None
        if self.on is DependsOn.ANY:
            return True
        return (state is JobState.SUCCEEDED) is (self.on is DependsOn.OK)


def told(dependencies: tuple[Dependency, ...], most: int = 4) -> str:
    """Return what is waited for in all, in words; at most so many are named."""
    named = [each.told() for each in dependencies[:most]]
    more = len(dependencies) - most
    return " and ".join([*named, f"{more} more"] if more > 0 else named)


class HoldKind(StrEnum):
    """What keeps a job from starting; `core.eligibility` says when each kind ends."""

    USER = "user"  # its owner or an operator, until it is resumed
    BEGIN = "begin"  # its owner wants it to start no earlier than a time; or it was queued again too often
    AFTER = "after"  # its owner wants it to start when another job has ended or started; one hold for each condition
    LIMIT = "limit"  # a limit on what its user or group may have running, until others under it have ended
    ARRAY = "array"
    """It is an array, whose elements start in its place; or an element, and as many others of it run as may at once."""


class Hold(NamedTuple):
    """One thing that keeps a waiting job from starting; the job is eligible once it has none."""

    kind: HoldKind  # what it is
    by: str = ""  # the user who asked for it, or the limit that is reached
    until_s: float | None = None  # when it ends by itself; None where something else ends it
    after: Dependency | None = None  # what ends it, where that is another job


@final
@dataclass(unsafe_hash=True, slots=True)
class StateChange:
    """One line of a job's story."""

    at_s: Final[float]  # when it was told
    state: Final[JobState]  # the state into which the job came
    reason: Final[Reason]  # why, for people to read
    # what kinds of holds it had from then on; one of a limit begins and ends without a line
    held_by: Final[tuple[HoldKind, ...]] = ()


def kinds(holds: Sequence[Hold]) -> tuple[HoldKind, ...]:
    """The kinds of holds, each once, in order of their names."""
    return tuple(sorted({hold.kind for hold in holds})) if holds else ()


STORY_FIRST: Final = 16
STORY_LAST: Final = 48
STORY_MAX: Final = STORY_FIRST + STORY_LAST
"""A story keeps so many first and so many last changes: one of a job moved for weeks is no longer than others."""


def shorter_story(story: tuple[StateChange, ...], left_out: int) -> tuple[tuple[StateChange, ...], int]:
    """What is kept of a story that is too long, and how many changes it leaves out."""
    return (*story[:STORY_FIRST], *story[-STORY_LAST:]), left_out + len(story) - STORY_MAX
