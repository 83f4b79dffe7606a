"""Why a job that waits may not start yet, whatever is free, and what other jobs must have done before it may.

What is held is not in the queue that policies see.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from colane.model.phases import Element
from colane.model.story import ENDED, JobState


class DependsOn(StrEnum):
    """What a job must have done; Slurm's `afterok`, `afternotok`, `afterany` and `after`."""

    OK = "ok"
    """It has succeeded."""
    FAIL = "fail"
    """It has ended in any other way."""
    ANY = "any"
    """It has ended."""
    START = "start"
    """It has started, or has ended without."""


class IfNever(StrEnum):
    """What becomes of a job once its condition cannot come true any more."""

    CANCEL = "cancel"
    HOLD = "hold"


_TOLD: Final = {
    DependsOn.OK: "job {job} has succeeded",
    DependsOn.FAIL: "job {job} has failed",
    DependsOn.ANY: "job {job} has ended",
    DependsOn.START: "job {job} has started",
}


class Dependency(NamedTuple):
    """One condition.

    Attributes:
        on: What must have happened.
        job: Id of the job to which.
        element: Which element of which array that is; None of any other job.
    """

    on: DependsOn
    job: int
    element: Element | None = None

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

    USER = "user"
    """Its owner or an operator, until it is resumed."""
    BEGIN = "begin"
    """Its owner wants it to start no earlier than a time."""
    AFTER = "after"
    """Its owner wants it to start when another job has ended or started; one hold for each condition."""
    LIMIT = "limit"
    """A limit on what its user or group may have running, until others under it have ended."""
    ARRAY = "array"
    """It is an array, whose elements start in its place; or an element, and as many others of it run as may at once."""


class Hold(NamedTuple):
    """One thing that keeps a waiting job from starting; the job is eligible once it has none.

    Attributes:
        kind: What it is.
        by: The user who asked for it, or the limit that is reached.
        until_s: When it ends by itself; None where something else ends it.
        after: What ends it, where that is another job.
    """

    kind: HoldKind
    by: str = ""
    until_s: float | None = None
    after: Dependency | None = None
