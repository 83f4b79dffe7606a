"""What each action of a plan does to the state, once the plan was judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from colane.core.cluster.bookings import throttled
from colane.core.lifecycle import evolve, move
from colane.core.planners.separating import apart
from colane.core.reducers import checkpointing, parking
from colane.core.reducers.starting import assign
from colane.core.reducers.step import Step
from colane.model.job import Job, JobState
from colane.model.plan import Action, Move, Park, Remark, Resize, SetCores, SetThrottle, Start, Stop
from colane.model.reason import Why


def carry_out(step: Step, action: Action) -> None:
    """Do what an action says."""
    DOERS[type(action)](step, step.state.jobs[action.job], action)


def _start(step: Step, job: Job, action: Start) -> None:
    assign(step, job, action.placement, action.reason)


def _stop(step: Step, job: Job, action: Stop) -> None:
    """What a company that is too slow achieved is learnt first, so that its like is not brought together again."""
    if action.reason.why is Why.TOO_SLOW_TOGETHER:
        step.company_changed(job.gpus_held)
    if action.for_job is not None:
        job = evolve(job, preemptions=job.preemptions + 1)
    if action.reason.why is Why.ABORTS_USED_UP:
        step.stop(job, JobState.FAILED, action.reason, makes_room_for=action.for_job)
    elif action.reason.why is Why.OUTGROWN:  # their GPU has no room for them until one of them is gone
        step.stop(job, JobState.QUEUED, action.reason, makes_room_for=action.for_job)
    else:
        checkpointing.part(step, job, action.reason, makes_room_for=action.for_job)


def _park(step: Step, job: Job, action: Park) -> None:
    parking.park(step, apart(job, action.reason), action)


def _move(step: Step, job: Job, action: Move) -> None:
    if job.parked:
        parking.come_back(step, job, action)
    elif job.is_on_host:
        parking.go_on(step, job, action.reason)
    else:
        _change_lane(step, job, action)


def _change_lane(step: Step, job: Job, action: Move) -> None:
    """Book a job of one GPU in another lane of it."""
    slot = action.placement.slots[0]
    step.company_changed([slot.gpu])
    step.state.change_lane(slot.gpu, job.id, slot.lane)
    step.put(move(job, job.state, step.now_s, action.reason, placement=action.placement))


def _resize(step: Step, job: Job, action: Resize) -> None:
    """Stop its process; until that is gone it books what it has and what it is to have."""
    step.company_changed(job.gpus_held)
    checkpointing.part(step, job, action.reason, resizes_to=action.placement, makes_room_for=action.for_job)


def _set_cores(step: Step, job: Job, action: SetCores) -> None:
    if job.placement is not None:
        step.company_changed(job.gpus_held)
        placement = replace(job.placement, cores=action.cores, cores_elsewhere=action.cores_elsewhere)
        step.state.set_cores(job.placement, placement)
        step.put(move(job, job.state, step.now_s, action.reason, placement=placement))


def _set_throttle(step: Step, job: Job, action: SetThrottle) -> None:
    changes = {"placement": throttled(job, action.throttle), "throttle": action.throttle}
    step.rebook(move(job, job.state, step.now_s, action.reason, **changes))


def _remark(step: Step, job: Job, action: Remark) -> None:
    """What a search for cores ended with is learnt at once, for the next job of its kind."""
    if action.reason.why is Why.CORES_KEPT:
        step.company_changed(job.gpus_held)
    step.put(move(job, job.state, step.now_s, action.reason))


DOERS: dict[type, Callable[[Step, Job, Any], None]] = {
    Start: _start,
    Stop: _stop,
    Park: _park,
    Move: _move,
    Resize: _resize,
    SetCores: _set_cores,
    SetThrottle: _set_throttle,
    Remark: _remark,
}
