"""Attempts that stand halted because a node of theirs is silent: they go on where they stood when it is back.

A job over several nodes is halted on the others, too: its agents are told to, and say when it stands. Jobs wait in the
queue meanwhile, and may be started elsewhere: with that start, or with one of another job on GPUs of theirs, the halted
attempt is over (`Step.put`), and agents end what is left of it.
"""

from __future__ import annotations

from typing import Final

from colane.core.events import Ended, NodeLost, PartHalted, ResumeRequested
from colane.core.lifecycle import move, not_resized, without_halted
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

ORDER_MAX_S: Final = 30.0
"""Agents that are told to halt a part have so long, which takes a heartbeat."""


def lose(step: Step, job: Job, event: NodeLost, reason: Reason) -> bool:
    """Keep the attempt of a job that has lost a node as halted, and queue it again; False where it is lost for good.

    What it has on nodes that are heard is halted first, as their agents are told.
    """
    if job.placement is None or not event.halts(job.placement.nodes):
        if job.halted is not None:
            step.put(without_halted(job))
        return False
    if job.halted is None:
        leaving = job.leaving
        is_to_end = leaving is not None and leaving.ending is not JobState.QUEUED
        if job.state not in MAY_STAND or is_to_end or job.run.ended_on:
            return False
        if job.totals.losses >= step.config.node_losses_max:
            return False
        halted = _halted(step, job)
        if step.is_on_one_node(job):
            step.leave(job, JobState.QUEUED, reason, is_loss=True)
        else:
            step.rebook(not_resized(job))
            step.stop(step.state.jobs[job.id], JobState.QUEUED, reason, is_loss=True)
        job = step.state.jobs[job.id].copied()
        job.halted = halted
        step.put(job)
        watch_order(step, job)
    _stood(step, job, event.node)
    return True


def part_halted(step: Step, event: PartHalted) -> None:
    """A part of a job that has lost another one stands."""
    job = step.state.jobs.get(event.job)
    if job is not None and job.attempt == event.attempt and job.halted is not None:
        _stood(step, job, event.node)
        _go_on(step, step.state.jobs[job.id], event.node)


def part_ended(step: Step, event: Ended) -> None:
    """An attempt of which a part has ended does not go on."""
    job = step.state.jobs.get(event.job)
    halted = None if job is None or job.attempt != event.attempt else job.halted
    if job is not None and halted is not None and event.node in halted.placement.nodes:
        step.put(without_halted(job))


def watch_order(step: Step, job: Job) -> None:
    """Its parts have until then to be halted, where they are to be."""
    if job.halted is not None and job.state is JobState.STOPPING and job.since_s is not None:
        step.timers.set(job.since_s + ORDER_MAX_S, TimerKind.HALT_DUE, job.id, job.attempt)


def order_due(step: Step, job: Job) -> None:
    """A part does not stand in time: the job is stopped, and begins anew."""
    if job.halted is not None and job.state is JobState.STOPPING:
        step.put(without_halted(job))


def _stood(step: Step, job: Job, node: str) -> None:
    """A part of it is halted, or silent; once all are, it waits."""
    if job.state is not JobState.STOPPING or job.halted is None or node in job.run.ended_on:
        return
    job = step.gone_from(job, node)
    if step.is_gone(job):
        step.leave(job, JobState.QUEUED, job.reason or Reason(Why.NODE_LOST, {"node": node}), is_loss=True)


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
            _go_on(step, job, node.name)


def _is_same(step: Step, job: Job, halted: Halted) -> bool:
    """Whether its nodes, those that are there, are the same machines, and still have its GPUs."""
    nodes, placement = step.state.nodes, halted.placement
    pools = {job.spec.pool, *[way.pool for way in job.spec.pools]}
    for name, agent_id in zip(placement.nodes, halted.agents, strict=True):
        known = nodes.get(name)
        if known is not None and (known.node.agent_id != agent_id or known.node.pool not in pools):
            return False
    for gpu, uuid in zip(placement.gpus, halted.uuids, strict=True):
        load = step.state.gpus.get(gpu)
        if gpu.node in nodes and (load is None or load.gpu.uuid != uuid):
            return False
    return True


def _go_on(step: Step, job: Job, node: str) -> None:
    """It is what it was, once all its nodes are there. Where its owner has it held since, it waits instead."""
    halted, nodes = job.halted, step.state.nodes
    if halted is None or job.state is not JobState.QUEUED or not nodes.keys() >= set(halted.placement.nodes):
        return
    if (pool := nodes[node].node.pool) != job.spec.pool:
        job = job.in_pool(pool)
    is_held = any(hold.kind is not HoldKind.LIMIT for hold in job.holds)
    was_held = halted.suspension is not None and not halted.suspension.until_step
    back = job.halted_as()
    if (is_held and not was_held) or not all(nodes[name].has_room_for(back) for name in halted.placement.nodes):
        step.put(without_halted(job))
        return
    moved = move(job, halted.state, step.now_s, Reason(Why.WENT_ON, {"node": node}))
    back.story, back.story_left_out = moved.story, moved.story_left_out
    back.reason, back.since_s = moved.reason, moved.since_s
    # what it had before is charged
    back.run = halted.run._replace(assigned_s=step.now_s - back.paused_s(step.now_s), went_on_s=step.now_s)
    step.put(back)
    watch(step, back)
    if was_held and not is_held and halted.suspension is not None:
        suspension.resume_requested(step, ResumeRequested(job.id, halted.suspension.by))


def watch(step: Step, job: Job) -> None:
    """Set the timers of a job that runs, and watch its GPUs."""
    step.co_runners_changed(job.gpus_held)
    if job.start_s is not None:
        set_timers(step, job, job.start_s)
    watch_order(step, job)
    if job.state is JobState.RUNNING_PROTECTED and job.first_step_s is not None:
        step.timers.set(job.first_step_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
