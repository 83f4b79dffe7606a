"""Whether servers answer as soon as they are meant to, as seen of their last answers, and who keeps them from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from colane.model.job import Job, JobId
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


class Held(NamedTuple):
    """How long a job has held the lane of a server while that was late, and how long its steps are: seconds."""

    job: JobId
    held_s: float
    step_s: float | None


def delay_s2(held: Held) -> float:
    """How much answers were delayed by one that held their lane, up to a factor that all have in common: s^2.

    A request that comes meanwhile waits for the end of the step, half of one on average, and the longer the lane was
    held, the more come. Whose steps are not known has held the lane for one.
    """
    return held.held_s * (held.held_s if held.step_s is None else held.step_s)


def blamed(holders: Iterable[Held]) -> JobId | None:
    """Who of a lane has delayed answers most; None where none has held it. Who came when does not count."""
    found = max(holders, key=lambda held: (delay_s2(held), held.job), default=None)
    return found.job if found is not None and delay_s2(found) > 0 else None
