"""What the scheduler tells of a job, as clients draw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from colane.api.jobs import FactsObject, JobObject

_UNKNOWN: Final = (
    "done_ratio", "left_s", "left_by", "limit_left_s", "now_steps_per_s", "in_turn_steps_per_s",
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
