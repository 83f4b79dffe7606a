"""Jobs that their agent has let out of the turns of their lane, and those that wait for them.

A job that reaches no step boundary while others wait runs outside its lane. Until it is back it is booked as a lane of
its own, so that no job joins that has no room next to it; its agent makes those in its lane wait that have no room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from colane.core.lifecycle import noted
from colane.core.reducers.step import Step
from colane.model.job import Job
from colane.model.progress import KEPT, UNGATED, Progress
from colane.model.reason import Reason, Why

WHYS: Final[Mapping[str, Why]] = {UNGATED: Why.OUT_OF_TURNS, KEPT: Why.KEPT_WAITING, "": Why.TAKES_TURNS_AGAIN}


def told(step: Step, job: Job, progress: Progress) -> Job:
    """Take how a job stands in its lane from a sample of it; what changed is told in its story."""
    turn = progress.turn if progress.turn in WHYS else ""
    if turn == job.turn or not job.gpus_held:
        return job
    reason = _reason(step, job, turn, progress)
    job = noted(job, step.now_s, reason)
    job.turn = turn
    step.put(job)
    step.state.refresh_bookings(next(b.key for b in step.state.gpus[job.gpus_held[0]].bookings if b.job == job.id))
    return job


def _reason(step: Step, job: Job, turn: str, progress: Progress) -> Reason:
    slots = job.placement.slots if job.placement is not None else ()
    facts: dict[str, str | int | float] = {"gpu": str(slots[0].gpu), "lane": slots[0].lane, "detail": progress.note}
    here = [(slot.lane, step.state.gpus[slot.gpu]) for slot in slots if slot.gpu in step.state.gpus]
    lane_mates = {b.job for lane, load in here for b in load.bookings if b.lane == lane} - {job.id}
    return Reason(WHYS[turn], facts, tuple(sorted(lane_mates)))
