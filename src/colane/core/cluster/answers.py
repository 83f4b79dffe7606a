"""Whether servers answer as soon as they are meant to, as seen of their last answers."""

from __future__ import annotations

from typing import NamedTuple

from colane.model.job import Job
from colane.model.progress import Progress


class LateAnswers(NamedTuple):
    """A server's objective, and what it answers within instead, 99 of 100 times: seconds."""

    latency_s: float
    p99_s: float


def late_answers(job: Job, progress: Progress | None) -> LateAnswers | None:
    """How a server misses its objective; None where it keeps it, has none, or no answer of it was seen."""
    objective_s, p99_s = job.effective.latency_s, None if progress is None else progress.latency_p99_s
    if objective_s is None or p99_s is None or p99_s <= objective_s:
        return None
    return LateAnswers(objective_s, p99_s)
