"""What the scheduler tells of a job, as clients draw it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from colane.api.jobs import FactsObject, JobObject


# -- What holds of a job, where that is not what its owner declared.


def in_force(job: JobObject, name: str) -> Any:  # noqa: ANN401 - JSON
    """Return one of a job's needs as it holds now: what it is held to, else what its owner declared."""
    needs: Mapping[str, Any] = job["needs"]
    constraints: Mapping[str, Any] = job.get("constraints", {})
    return constraints[name] if name in constraints else needs.get(name)


# -- That a time before which a job may not start has passed when the job is submitted: it is told, not refused.


def past_begin(text: object) -> str | None:
    """Return what to say of a date, as a request's `begin`, that has passed; None of another, and of what is none."""
    try:
        has_passed = datetime.fromisoformat(str(text).strip()).timestamp() < time.time()
    except (ValueError, OverflowError, OSError):
        return None
    return f"--begin {text} has passed: the job may start at once" if has_passed else None


_UNKNOWN: Final = (
    "done_ratio", "left_s", "left_p10_s", "left_p50_s", "left_p90_s", "left_by", "limit_left_s", "now_steps_per_s",
    "in_turn_steps_per_s",
    "whole_steps_per_s", "speed_ratio", "share_got_ratio", "share_asked_ratio", "spent_s", "saved_ago_s", "time_spent",
    "expected_start", "expected_end",
)  # fmt: skip


def facts_of(job: JobObject) -> FactsObject:
    """Return what is told of a job; nothing by a scheduler that is older than facts."""
    known = job.get("facts")
    if known:
        return known
    empty = {"word": "", "gpus": [], "nodes": [], "is_length_guessed": False, "is_speed_believed": False, "ran_s": 0.0}
    steps = {"steps": job.get("steps") or 0, "steps_total": job.get("steps_total")}
    return cast("FactsObject", {**dict.fromkeys(_UNKNOWN), **empty, **steps})
