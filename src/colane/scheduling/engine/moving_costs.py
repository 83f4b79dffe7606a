"""What moving a running job costs it, as a part of its price: each move more than the one before, less with time."""

from __future__ import annotations

from typing import Final

from colane.facts.ran import attained_s
from colane.model.job import Job

MOVE_PART: Final = 0.05
"""Part of a job's price that its first move costs, and each later one twice as much: the n-th is the dearer."""

WEEK_S: Final = 7 * 86_400.0  # how fast moves become cheaper again: at the pace at which more of them are allowed

MOVES_MAX: Final = 5  # after so many moves a job stays where it is, but for one more after each week that it has run

STOP_S: Final = 10.0  # what saving its state and loading it is believed to take a job beside its launch


def moved_part(moves: int, ran_s: float) -> float:
    """Part of a job's price that one more move costs after so many: the less the longer it has run."""
    return MOVE_PART * 2.0**moves / (1.0 + ran_s / WEEK_S)


def dearness(job: Job, now_s: float) -> float:
    """The same of a job."""
    return moved_part(job.moves, attained_s(job, now_s))


def may_move(job: Job, now_s: float) -> bool:
    """Whether a job has not been moved too often."""
    return job.moves < MOVES_MAX + attained_s(job, now_s) // WEEK_S
