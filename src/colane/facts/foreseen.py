"""When a job is expected to start and to end, as every screen tells it."""

from __future__ import annotations

from typing import Final

from colane.api.jobs import ExpectedObject
from colane.foresee.said import BURSTS_MIN, QuoteBounds, Shown
from colane.model.words import about

WIDE: Final = 30.0  # where the last is so many times the first, only the last is said

SOON_S: Final = 60.0
NOT_KNOWN: Final = f"not known: fewer than {BURSTS_MIN} such waits seen"


def expected(bounds: QuoteBounds, shown: Shown, now_s: float) -> ExpectedObject:
    """Return what is told of what was worked out some time ago, from now on."""
    past_s = max(0.0, now_s - shown.at_s)
    low_s, middle_s, high_s = (max(0.0, one - past_s) for one in bounds[:3])
    known = bounds.is_known
    return {
        "p10_s": low_s if known else None,
        "p50_s": middle_s if known else None,
        "p90_s": high_s if known else None,
        "said_s": shown.at_s,
        "basis": "told" if shown.is_told else "learnt",
        "sentence": sentence(low_s, middle_s, high_s) if known else NOT_KNOWN,
    }


def sentence(low_s: float, middle_s: float, high_s: float) -> str:
    """Return an interval in words."""
    if high_s < SOON_S:
        return "within a minute"
    if high_s > WIDE * max(low_s, SOON_S):
        return f"within {about(high_s)}"
    return f"in {about(middle_s)} ({about(low_s)} to {about(high_s)})"
