"""Live arrays and their live elements, indexed so that an event costs what it changes."""

from __future__ import annotations

from colane.model.job import Job, JobId, JobState
from colane.model.phases import HoldKind


def may_start(job: Job) -> bool:
    """Whether an element may start at any time: nothing holds it, unless it be a limit of its user."""
    return job.state is JobState.QUEUED and all(hold.kind is HoldKind.LIMIT for hold in job.holds)


def waits_for_turn(job: Job) -> bool:
    """Whether its array holds an element, and nothing else but a limit does."""
    kinds = [hold.kind for hold in job.holds]
    return HoldKind.ARRAY in kinds and all(kind in {HoldKind.ARRAY, HoldKind.LIMIT} for kind in kinds)


class LiveElements:
    """Those of one array.

    Attributes:
        jobs: All of them.
        open: Those that wait and may start.
        turned: Those that wait for others of their array alone.
        placed: Those that hold GPUs or cores.
    """

    __slots__ = ("jobs", "open", "placed", "turned")

    def __init__(self) -> None:
        self.jobs: set[JobId] = set()
        self.open: set[JobId] = set()
        self.turned: set[JobId] = set()
        self.placed: set[JobId] = set()

    def take(self, job: Job) -> None:
        """Take an element's new value."""
        self.drop(job.id)
        if job.has_ended:
            return
        self.jobs.add(job.id)
        if job.placement is not None:
            self.placed.add(job.id)
        elif may_start(job):
            self.open.add(job.id)
        elif waits_for_turn(job):
            self.turned.add(job.id)

    def drop(self, job: JobId) -> None:
        """Forget an element."""
        for known in (self.jobs, self.open, self.turned, self.placed):
            known.discard(job)


class ArrayBook:
    """Live arrays with their live elements.

    Attributes:
        arrays: Ids of live arrays, ascending as they were submitted, and their elements.
        due: Arrays of which something has changed since they were last looked at.
        later: Arrays that are looked at again in the next step.
    """

    __slots__ = ("arrays", "due", "later")

    def __init__(self) -> None:
        self.arrays: dict[JobId, LiveElements] = {}
        self.due: dict[JobId, None] = {}
        self.later: dict[JobId, None] = {}

    def moved(self, job: Job) -> None:
        """An array, or an element of one, has another value or has ended."""
        if job.array is not None:
            self.due[job.id] = None
            if job.has_ended:
                self.arrays.pop(job.id, None)
            else:
                self.arrays.setdefault(job.id, LiveElements())
        elif job.element is not None:
            self.due[job.element.array] = None
            self.arrays.setdefault(job.element.array, LiveElements()).take(job)
