"""Giving a queued job GPUs for its next attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from colane.core.check import check
from colane.core.lifecycle import moves
from colane.core.reducers.step import Step
from colane.core.reducers.timers import TimerKind
from colane.model.job import Attempt, FallBack, Job, JobState
from colane.model.phases import COMING_UP
from colane.model.placement import Placement
from colane.model.plan import Plan, Start
from colane.model.reason import Reason, Why

ASSIGNED: Final = JobState.ASSIGNED
LAUNCHING: Final = JobState.LAUNCHING
TAKEN_TO_RUN: Final = (JobState.RUNNING, Reason(Why.TAKEN_TO_RUN))


def assign(step: Step, job: Job, placement: Placement, reason: Reason) -> None:
    """Put a queued job there; its agents start it, or it runs at once."""
    placement, now_s = placement if len(placement.nodes) == 1 else _with_port(step, placement), step.now_s
    if step.config.runs_at_once:
        launched = Reason(Why.LAUNCHED, {"pid": 0, "node": placement.node})
        taken = moves(job, now_s, ((ASSIGNED, reason), (LAUNCHING, launched), TAKEN_TO_RUN))
        taken.run = Attempt(assigned_s=now_s, start_s=now_s)
        if job.first_start_s is None:
            taken.first_start_s = now_s
    else:
        taken = moves(job, now_s, ((ASSIGNED, reason),))
    taken.placement, taken.attempt = placement, job.attempt + 1
    step.put(taken)
    if taken.run.start_s is not None:
        set_timers(step, taken, taken.run.start_s)
    step.co_runners_changed(placement.gpus)


def restart(step: Step, job: Job, placement: Placement, reason: Reason, had: Placement | None = None) -> None:
    """Start a job that is resized at its new place, if that is still to be had; else it waits like others.

    Where it does not come up there, it goes back to what it `had`.
    """
    start = Start(job.id, placement, reason)
    if not check(step.state, Plan(step.state.version, (start,))):
        job = job.copied()
        failed = 0 if job.falls_back is None else job.falls_back.launches_failed
        job.falls_back = None if had is None else FallBack(had, failed)
        assign(step, job, placement, reason)


def _with_port(step: Step, placement: Placement) -> Placement:
    """Hand out the lowest port that no other job's first node uses."""
    state = step.state
    others = [state.jobs[job].placement for job in state.nodes[placement.node].jobs]
    others += [halted.placement for job in state.halted if (halted := state.jobs[job].halted) is not None]
    taken = {other.port for other in others if other is not None and other.node == placement.node}
    first, last = step.config.gang_ports
    return replace(placement, port=next((port for port in range(first, last + 1) if port not in taken), first))


def set_timers(step: Step, job: Job, start_s: float) -> None:
    """Time limit, and the moment a process without steps is taken to run."""
    step.set_limit_timer(job)
    if job.state in COMING_UP:
        step.timers.set(start_s + step.config.opaque_after_s, TimerKind.TAKEN_TO_RUN, job.id, job.attempt)
