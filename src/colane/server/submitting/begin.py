"""Times before which jobs may not start, as people write them: from now, at an hour, or on a date."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from colane.model.quantities import parse_duration_s

NOW = "now"


def begin_time_s(text: str, now_s: float) -> float:
    """Return the Unix time that a text names; hours and dates without a zone are of this machine's.

    Raises:
        ValueError: It names none.
    """
    said = text.strip()
    if said.startswith(NOW):
        more = said.removeprefix(NOW).strip()
        if not more:
            return now_s
        if more.startswith("+"):
            return now_s + parse_duration_s(more[1:].strip())
    try:
        return _hour_s(said, now_s) if _is_hour(said) else datetime.fromisoformat(said).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"must be now+2h, a time as 16:00 or a date as 2030-12-01T08:00, got {text!r}") from error


def _is_hour(said: str) -> bool:
    return ":" in said and said.replace(":", "").isdecimal()


def _hour_s(said: str, now_s: float) -> float:
    """The next time that the clock of this machine shows that hour."""
    now = datetime.fromtimestamp(now_s)  # noqa: DTZ006 - of this machine's zone
    hour = datetime.strptime(said, "%H:%M:%S" if said.count(":") > 1 else "%H:%M").time()  # noqa: DTZ007
    at = datetime.combine(now.date(), hour)
    return (at if at.timestamp() > now_s else at + timedelta(days=1)).timestamp()


@lru_cache(maxsize=64)  # a batch's jobs begin at one time, and the system's zone takes longer than all else of them
def time_text(at_s: float) -> str:
    """Return a time as people read it, by this machine's clock."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
