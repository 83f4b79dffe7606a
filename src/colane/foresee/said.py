"""What is said of a job: an interval for its start, and one for its end."""

from __future__ import annotations

from typing import Final, NamedTuple

BURSTS_MIN: Final = 10
"""With fewer separate bursts near a horizon a quote is not known."""


class QuoteBounds(NamedTuple):
    """A quote: in how many seconds, with a probability of 80 % between the first and the last.

    Attributes:
        p10_s: The lower bound.
        p50_s: The median.
        p90_s: The upper bound.
        bursts: Separate bursts of quotes that are known near this horizon.
    """

    p10_s: float
    p50_s: float
    p90_s: float
    bursts: int

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to say it."""
        return self.bursts >= BURSTS_MIN


class Shown(NamedTuple):
    """What is shown of a live job.

    Attributes:
        at_s: When it was worked out.
        start: When it starts; None of one that runs.
        end: When it ends.
        end_point_s: The same before it was widened.
        is_told: Whether its own length is told.
    """

    at_s: float
    start: QuoteBounds | None
    end: QuoteBounds
    end_point_s: float
    is_told: bool
