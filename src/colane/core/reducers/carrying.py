"""What each action of a plan does to the state, once the plan was judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from colane.core.cluster.bookings import throttled
from colane.core.lifecycle import isolated, move
from colane.core.reducers import checkpointing, parking
from colane.core.reducers.starting import assign
from colane.core.reducers.step import Step
from colane.model.job import Job, JobState, Leaving
from colane.model.plan import Action, Move, Park, Remark, Resize, SetCores, SetThrottle, Start, Stop


def carry_out(step: Step, action: Action) -> None:
    """Do what an action says."""
    DOERS[type(action)](step, step.state.jobs[action.job], action)


def _start(step: Step, job: Job, action: Start) -> None:
    assign(step, job, action.placement, action.reason)


def _stop(step: Step, job: Job, action: Stop) -> None:
    """Let it go as the action says: for good or until its next turn, at once or after it has saved its state."""
    if action.learn:
        step.co_runners_changed(job.gpus_held)
    if action.for_job is not None:
        job = job.with_totals(job.totals._replace(preemptions=job.totals.preemptions + 1))
    leaving = Leaving(JobState.QUEUED, None, action.for_job, isolates=action.isolate)
    if action.final or not action.save:
        ending = JobState.FAILED if action.final else JobState.QUEUED
        step.stop(job, ending, action.reason, for_job=action.for_job, isolates=action.isolate)
    else:
        checkpointing.part(step, job, action.reason, leaving)


def _park(step: Step, job: Job, action: Park) -> None:
    parking.park(step, isolated(job) if action.isolate else job, action)


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
    step.co_runners_changed([slot.gpu])
    step.state.change_lane(slot.gpu, job.id, slot.lane)
    moved = move(job, job.state, step.now_s, action.reason)
    moved.placement = action.placement
    step.put(moved)


def _resize(step: Step, job: Job, action: Resize) -> None:
    """Stop its process; until that is gone it books what it has and what it is to have."""
    step.co_runners_changed(job.gpus_held)
    checkpointing.part(step, job, action.reason, Leaving(JobState.QUEUED, action.placement, action.for_job))


def _set_cores(step: Step, job: Job, action: SetCores) -> None:
    if job.placement is not None:
        step.co_runners_changed(job.gpus_held)
        placement = replace(job.placement, cores=action.cores, cores_elsewhere=action.cores_elsewhere)
        step.state.set_cores(job.placement, placement)
        moved = move(job, job.state, step.now_s, action.reason)
        moved.placement = placement
        step.put(moved)


def _set_throttle(step: Step, job: Job, action: SetThrottle) -> None:
    moved = move(job, job.state, step.now_s, action.reason)
    moved.placement, moved.throttle = throttled(job, action.throttle), action.throttle
    step.rebook(moved)


def _remark(step: Step, job: Job, action: Remark) -> None:
    """What was seen until now is learnt first where the action says so."""
    if action.learn:
        step.co_runners_changed(job.gpus_held)
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
