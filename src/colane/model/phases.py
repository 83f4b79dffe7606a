"""Phases of a job's life that have facts of their own: each is a record, there while the phase lasts and gone after it.

`core.lifecycle` says to which states each belongs, and takes it away when the job comes into another.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

from colane.model.placement import Placement
from colane.model.story import JobState, SuspendVia

JobId = NewType("JobId", int)
"""Handed out in order of submission, so that order of arrival is order of id."""


class Suspension(NamedTuple):
    """Somebody wants a job not to go on that was running: it is PAUSED, unless it leaves its GPUs besides.

    Attributes:
        via: How it is kept from going on.
        by: Who wanted it.
    """

    via: SuspendVia
    by: str


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
        left_beside: Jobs that were on its GPUs when its memory left them: beside these it may come back. None of them
            where it was parked because of them.
    """

    size_bytes: int
    left_beside: tuple[JobId, ...] = ()
