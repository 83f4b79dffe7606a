"""What is said of a job: an interval for its start, and one for its end."""

from __future__ import annotations

from typing import Final, NamedTuple

BURSTS_MIN: Final = 10  # with fewer separate bursts near a horizon a quote is not known


AHEAD, RECENTLY, BY_MEANS, ROLLED, MIXED = range(5)
METHODS: Final = ("work ahead", "recent waits", "plan by mean lengths", "roll-outs", "foreseen")
"""Points that are scored; the three first are what others would say, by which the last is judged."""


class QuoteBounds(NamedTuple):
    """A quote: in how many seconds, with a probability of 80 % between the first and the last."""

    p10_s: float  # the lower bound
    p50_s: float  # the median
    p90_s: float  # the upper bound
    bursts: int  # separate bursts of quotes that are known near this horizon
    at_once: float = 0.0  # the probability that it comes within a minute

    @property
    def is_known(self) -> bool:
        """Whether enough was seen to say it."""
        return self.bursts >= BURSTS_MIN


class StartQuote(NamedTuple):
    """What is told of one job."""

    job: int  # which
    at_s: float  # when it was said
    starts: tuple[QuoteBounds, ...]  # by method
    end: QuoteBounds  # when it ends
    is_told: bool  # whether its own length is told

    @property
    def start(self) -> QuoteBounds:
        """What is shown."""
        return self.starts[MIXED]


class Shown(NamedTuple):
    """What is shown of a live job."""

    at_s: float  # when it was worked out
    start: QuoteBounds | None  # when it starts; None of one that runs
    end: QuoteBounds  # when it ends
    end_point_s: float  # the same before it was widened
    is_told: bool  # whether its own length is told
    problem: str = ""  # why nothing is known of it where that is not for want of bursts
    start_point_s: float | None = None  # when it starts if all take the middle of what is believed, where that tells


UNKNOWN: Final = QuoteBounds(0.0, 0.0, 0.0, 0)


def unforeseen(now_s: float, problem: str, *, waits: bool) -> Shown:
    """Return what is shown of a job of which nothing is known, and why."""
    return Shown(now_s, UNKNOWN if waits else None, UNKNOWN, 0.0, is_told=False, problem=problem)


def said_fault(error: BaseException) -> str:
    """Return what is said where foreseeing itself has failed."""
    return f"a fault in foreseeing ({type(error).__name__}{f': {error}' if str(error) else ''})"
