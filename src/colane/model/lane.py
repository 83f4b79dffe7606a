"""How the jobs of one lane take turns (paper B, section 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TurnRule(StrEnum):
    """Which job of a lane runs the next step."""

    FIFO = "fifo"
    SRTF = "srtf"
    FAIR = "fair"
    RR = "rr"
    PRIORITY = "priority"


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
