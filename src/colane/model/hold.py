"""Why a job that waits may not start yet, whatever is free: it is not in the queue that policies see."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from colane.model.dependency import Dependency


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
