"""What becomes of jobs that hold devices and use none."""

from __future__ import annotations

from enum import StrEnum


class IdleRule(StrEnum):
    """The rule for them."""

    NONE = "none"
    PARK = "park"
    STOP = "stop"
