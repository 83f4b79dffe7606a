"""Attempts that stand halted because a node of theirs is silent: they go on where they stood when it is back.

Their jobs wait in the queue meanwhile, and may be started elsewhere: with that start, or with one of another job on
GPUs of theirs, the halted attempt is over (`Step.put`), and agents end what is left of it.
"""

from __future__ import annotations

from typing import Final

from colane.core.events import ResumeRequested
from colane.core.lifecycle import move, without_halted
from colane.core.reducers import suspension
from colane.core.reducers.starting import set_timers
from colane.core.reducers.step import Step
from colane.core.reducers.timers import TimerKind
from colane.model.hardware import Node
from colane.model.job import Job, JobState
from colane.model.phases import Halted, HoldKind
from colane.model.reason import Reason, Why

MAY_STAND: Final = frozenset(
    {
        JobState.ASSIGNED, JobState.LAUNCHING, JobState.RUNNING_PROTECTED, JobState.RUNNING, JobState.PAUSED,
        JobState.CHECKPOINTING,
    }
)  # fmt: skip
"""One that was told to end does not go on."""


def lose(step: Step, job: Job, halting: frozenset[str], reason: Reason) -> bool:
    """Queue a job of one node again that is silent, its attempt kept as halted; False where that is lost for good."""
    placement, leaving = job.placement, job.leaving
    if placement is None or job.state not in MAY_STAND or job.totals.losses >= step.config.node_losses_max:
        return False
    if leaving is not None and leaving.ending is not JobState.QUEUED:
        return False
    if len(placement.nodes) > 1 or not halting.issuperset(placement.nodes):
        return False  # parts on nodes that are heard run on: they are stopped before it is started anew
    halted = _halted(step, job)
    step.leave(job, JobState.QUEUED, reason, is_loss=True)
    waiting = step.state.jobs[job.id].copied()
    waiting.halted = halted
    step.put(waiting)
    return True


def _halted(step: Step, job: Job) -> Halted:
    """What it was; of one that was to save its state and leave, as it goes on with its place."""
    state, placement = job.state, job.placement
    assert placement is not None  # noqa: S101 - as the caller knows
    if state is JobState.CHECKPOINTING:
        state = JobState.PAUSED if job.suspended else JobState.RUNNING_PROTECTED
    nodes, gpus = step.state.nodes, step.state.gpus
    return Halted(
        state,
        placement,
        job.run,
        job.totals,
        job.constraints.cores,
        tuple([nodes[name].node.agent_id if name in nodes else "" for name in placement.nodes]),
        tuple([gpus[gpu].gpu.uuid if gpu in gpus else "" for gpu in placement.gpus]),
        job.throttle,
        job.turn,
        job.suspension,
        job.parking,
        job.on_host,
    )


def came_back(step: Step, node: Node) -> None:
    """A node is there again: what stands on it goes on."""
    for job_id in sorted(step.state.halted):
        job = step.state.jobs[job_id]
        if job.halted is None or node.name not in job.halted.placement.nodes:
            continue
        if not _is_same(step, job, job.halted):
            step.put(without_halted(job))
        else:
            _go_on(step, job, job.halted, node.name)


def _is_same(step: Step, job: Job, halted: Halted) -> bool:
    """Whether its nodes, those that are there, are the same machines, and still have its GPUs."""
    nodes, placement = step.state.nodes, halted.placement
    for name, agent_id in zip(placement.nodes, halted.agents, strict=True):
        known = nodes.get(name)
        if known is not None and (known.node.agent_id != agent_id or known.node.pool != job.spec.pool):
            return False
    for gpu, uuid in zip(placement.gpus, halted.uuids, strict=True):
        load = step.state.gpus.get(gpu)
        if gpu.node in nodes and (load is None or load.gpu.uuid != uuid):
            return False
    return True


def _go_on(step: Step, job: Job, halted: Halted, node: str) -> None:
    """It is what it was. Where its owner has it held since, it waits instead."""
    is_held = any(hold.kind is not HoldKind.LIMIT for hold in job.holds)
    was_held = halted.suspension is not None and not halted.suspension.until_step
    reason = Reason(Why.WENT_ON, {"node": node})
    is_lost = is_held and not was_held
    if is_lost:
        step.put(without_halted(job))
        return
    back = job.halted_as()
    moved = move(job, halted.state, step.now_s, reason)
    back.story, back.story_left_out = moved.story, moved.story_left_out
    back.reason, back.since_s = moved.reason, moved.since_s
    # what it had before is charged
    back.run = halted.run._replace(assigned_s=step.now_s - back.paused_s(step.now_s))
    step.put(back)
    watch(step, back)
    if was_held and not is_held and halted.suspension is not None:
        suspension.resume_requested(step, ResumeRequested(job.id, halted.suspension.by))


def watch(step: Step, job: Job) -> None:
    """Set the timers of a job that runs, and watch its GPUs."""
    step.co_runners_changed(job.gpus_held)
    if job.start_s is not None:
        set_timers(step, job, job.start_s)
    if job.state is JobState.RUNNING_PROTECTED and job.first_step_s is not None:
        step.timers.set(job.first_step_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
