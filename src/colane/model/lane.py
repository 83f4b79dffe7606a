"""How the jobs of one lane take turns (paper B, section 3.4), and which jobs may share a GPU at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from colane.model.job_spec import JobSpec


class TurnRule(StrEnum):
    """Which job of a lane runs the next step."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    RR = "rr"
    PRIORITY = "priority"


class ShareBetween(StrEnum):
    """Which jobs may share a GPU."""

    ALL = "all"
    GROUP = "group"
    """Jobs of users that named the same group; jobs without a group share with those of the same user."""
    USER = "user"


def sharing_domain(spec: JobSpec, between: ShareBetween) -> str:
    """The sharing domain of a job; empty, and so the same for all, where all jobs may share."""
    if between is ShareBetween.ALL:
        return ""
    if between is ShareBetween.GROUP and spec.group:
        return f"group {spec.group}"
    return f"user {spec.user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How a lane's turns are handed out.

    Attributes:
        rule: Which job has the next turn.
        quantum_s: A turn lasts this long, rounded up to whole steps; 0 is one step. None is as long as it takes for
            passing turns on to cost 1 % of the time at most (`lanes.turns.quantum_s`).
    """

    rule: TurnRule = TurnRule.FAIR
    quantum_s: float | None = None
