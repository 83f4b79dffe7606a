"""What a change of a job's state means to those who follow it, by its records of before and after.

Its reason explains the change, and is read by people alone: no notice, count or follower asks for a reason's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from colane.api.events import JobHappened
from colane.model.job import Job, JobState
from colane.model.phases import LEAVING, StateChange


def changes(old: Job | None, job: Job) -> Iterator[tuple[StateChange, JobHappened | None]]:
    """Yield a job's changes of state since its record of before, and what each has brought, if it is one of those."""
    state = None if old is None else old.state
    lines = job.changes_since(0 if old is None else old.changes)
    for line, following in zip_longest(lines, lines[1:]):
        to = line.state
        happened: JobHappened | None = None
        if job.array is not None:
            happened = "elements-cut" if job.array.cut != _cut(old) else None
        elif state is JobState.ASSIGNED and to is JobState.LAUNCHING:
            happened = "started"
        elif to is JobState.PAUSED and state is not to:
            happened = _paused(job)
        elif to is JobState.QUEUED and old is not None and _is_taken_off(old, state, job):
            goes_on = old.resizes_to is not None and following is not None and following.state is JobState.ASSIGNED
            happened = None if goes_on else "taken-off"
        yield line, happened
        state = to


def _cut(old: Job | None) -> object:
    return () if old is None or old.array is None else old.array.cut


def _paused(job: Job) -> JobHappened | None:
    if job.suspension is not None and job.suspension.until_step:
        return "parked-idle"
    return None if job.parking is None else "taken-off"


def _is_taken_off(old: Job, state: JobState | None, job: Job) -> bool:
    """Whether it had to leave its devices, or has lost them: none of its processes has failed by itself."""
    if job.totals.losses > old.totals.losses:
        return True
    if job.totals.failures > old.totals.failures:
        return False
    return state in LEAVING and (old.leaving is None or not old.leaving.has_failed)
