"""Phases of a job's life that have facts of their own: each is a record, there while the phase lasts and gone after it.

`core.lifecycle` says to which states each belongs, and takes it away when the job comes into another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, NewType

from colane.model.placement import Placement
from colane.model.story import Exit, JobState, Served, SuspendVia

JobId = NewType("JobId", int)
"""Handed out in order of submission, so that order of arrival is order of id."""


Ordinals = tuple[int, int]
"""Elements of an array from one to another, both included, counted from 0 in order of their indexes."""


@dataclass(frozen=True, slots=True)
class Element:
    """Which element of which array a job is.

    Attributes:
        array: Id of the array.
        index: Its index in it.
    """

    array: JobId
    index: int

    def __str__(self) -> str:
        """As people name it: `12[3]`."""
        return f"{self.array}[{self.index}]"


class Array(NamedTuple):
    """What an array knows of its elements, see `colane.model.arrays`.

    Attributes:
        indexes: Of all its elements, as text.
        size: How many it has.
        throttle: How many of them may run at once; None: any number.
        pending: Those that are no jobs of their own yet, in order.
        cut: Those that were cancelled before they were any, in order.
        succeeded: How many have.
        failed: How many have ended in another way without being cancelled.
        cancelled: How many were cancelled, those that were never jobs included.
        all_started: Whether each has started, or has ended without.
        is_cancelled: Whether it was cancelled as a whole, so that it ends as that whatever its elements do.
    """

    indexes: str
    size: int
    throttle: int | None = None
    pending: tuple[Ordinals, ...] = ()
    cut: tuple[Ordinals, ...] = ()
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    all_started: bool = False
    is_cancelled: bool = False


class Attempt(NamedTuple):
    """What is told of one attempt of a job: the next start begins a new one, in which nothing of this is left.

    Attributes:
        assigned_s: When it was given GPUs.
        start_s: When its process started.
        first_step_s: When it made its first step.
        launch_s: How long its launch took, where it has gone on as fewer ranks since; else None.
        paused_since_s: Since when it is PAUSED; None while it is not.
        paused_before_s: How long it was PAUSED in all, before that.
        saves_asked: How often it was asked to save its state before it is stopped.
        host_refusal: Why its agent could not move its memory to the host; empty where it was not refused.
        ended_on: Nodes from which its processes are gone, while others of its nodes still have some.
        exit: How its last process ended.
    """

    assigned_s: float | None = None
    start_s: float | None = None
    first_step_s: float | None = None
    launch_s: float | None = None
    paused_since_s: float | None = None
    paused_before_s: float = 0.0
    saves_asked: int = 0
    host_refusal: str = ""
    ended_on: tuple[str, ...] = ()
    exit: Exit | None = None

    def ended(self, exit: Exit) -> Attempt:
        """The same, ended so."""
        return Attempt(*self[:-1], exit)


NOT_YET: Final = Attempt()
"""Of a job that was never started."""


class Totals(NamedTuple):
    """What the attempts of a job have come to, the present one not counted before it has ended.

    Attributes:
        served: What they have had, by GPU type and number in their order.
        steps_kept: Steps it had made when its last attempt was stopped, as far as was seen, if it saves its state.
        lost_s: Run time whose steps have to be repeated, or were, as far as was seen.
        failures: Attempts that failed by the job's own fault.
        losses: How often it has lost the hardware it ran on.
        preemptions: How often a plan has stopped it for another job.
        saves_failed: How often it did not save its state when it was asked to.
        sent_back: How often in a row agents have sent it back before it was started, for want of memory.
    """

    served: tuple[Served, ...] = ()
    steps_kept: int = 0
    lost_s: float = 0.0
    failures: int = 0
    losses: int = 0
    preemptions: int = 0
    saves_failed: int = 0
    sent_back: int = 0


NONE: Final = Totals()
"""Of a job that was never started."""


class FallBack(NamedTuple):
    """A job that was resized has not stepped at its new size: where it does not come up there, it goes back.

    Attributes:
        to: Where it ran before.
        launches_failed: How often its launch has failed since.
    """

    to: Placement
    launches_failed: int = 0


class Suspension(NamedTuple):
    """A user asked for a running job to stop stepping: it is PAUSED, unless it leaves its GPUs as well.

    Attributes:
        via: How it is kept from going on.
        by: The user who asked for it.
        until_step: It was parked because it used nothing, and goes on by itself once it comes to a step boundary.
    """

    via: SuspendVia
    by: str
    until_step: bool = False


class Leaving(NamedTuple):
    """A job on its way off GPUs that it still holds: CHECKPOINTING or STOPPING.

    Attributes:
        ending: The state it comes into once its processes are gone.
        resizes_to: Where it goes on then; booked besides its placement.
        for_job: The job it is stopped for.
        isolates: Whether it has its GPUs to itself from its next start on, because of what it is stopped for.
        is_loss: Whether it is stopped for the hardware it has lost: that is counted once it is gone.
    """

    ending: JobState
    resizes_to: Placement | None = None
    for_job: JobId | None = None
    isolates: bool = False
    is_loss: bool = False


class Parking(NamedTuple):
    """A plan wants a job off its GPUs while it lives on: it is PAUSED, and waits for GPUs once it has left them.

    Attributes:
        for_job: The job it is parked for, until it is off its GPUs.
        home: Where alone it may go on while it waits, see `NeedClass.home`; empty while it holds its GPUs.
    """

    for_job: JobId | None = None
    home: str = ""


class OnHost(NamedTuple):
    """The GPU memory of a job lies on the host; its GPUs are not booked.

    Attributes:
        size_bytes: So much of it.
        left_beside: Jobs that were on its GPUs when its memory left them: it may come back next to these. None of them
            where it was parked because of them.
    """

    size_bytes: int
    left_beside: tuple[JobId, ...] = ()
