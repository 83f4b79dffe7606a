"""That a time before which a job may not start has passed when the job is submitted: it is told, not refused."""

from __future__ import annotations

import time
from datetime import datetime


def past_begin(text: object) -> str | None:
    """Return what to say of a date, as a request's `begin`, that has passed; None of another, and of what is none."""
    try:
        has_passed = datetime.fromisoformat(str(text).strip()).timestamp() < time.time()
    except (ValueError, OverflowError, OSError):
        return None
    return f"--begin {text} has passed: the job may start at once" if has_passed else None
