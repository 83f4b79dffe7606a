"""What each event does to the state. One function an event; deciding comes after all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from colane.core.events import (
    BandwidthObserved,
    CancelRequested,
    Ended,
    Event,
    GpusObserved,
    GroupsSeen,
    Launched,
    NodeLost,
    NodeRegistered,
    NodeReserved,
    ProfileDeclared,
    ProfilesForgotten,
    Progressed,
    RequeueRequested,
    Submitted,
    Tick,
)
from colane.core.lifecycle import ending_as, move, not_resized
from colane.core.reducers import (
    arrays,
    black_holes,
    checkpointing,
    dependencies,
    failing,
    fewer_cores,
    halting,
    leaving,
    losses,
    out_of_turns,
    parking,
    reforming,
    starting,
)
from colane.core.reducers.entering import entered
from colane.core.reducers.memory import attempt_ended, learn_memory
from colane.core.reducers.step import Step
from colane.core.reducers.timers import Timer, TimerKind, Timers
from colane.core.usage import TRUTHS_MIN
from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import Job, JobId, JobState
from colane.model.progress import Progress
from colane.model.reason import Reason, Why


def submitted(step: Step, event: Submitted) -> None:
    """A job enters the queue."""
    step.put(entered(step, event.job, event.spec, event.holds, event.array, event.after, event.promised))
    job = step.state.jobs[event.job]
    if event.refusal is not None:
        step.leave(job, JobState.CANCELLED, event.refusal)
        return
    if event.promised is not None or step.state.guarantees:
        step.state.changed_pools.on(event.spec.pool, ())  # others leave for it, however full the pool is
    if job.holds:
        set_hold_timers(step.timers, job)
        dependencies.enter(step, job)
    for element in arrays.make_held(step, job, event.elements) if event.elements else ():
        set_hold_timers(step.timers, element)
        dependencies.enter(step, element)


def set_hold_timers(timers: Timers, job: Job) -> None:
    """Of holds that end by themselves."""
    for hold in job.holds:
        if hold.until_s is not None:
            timers.set(hold.until_s, TimerKind.HOLD_OVER, job.id, job.attempt)


def _hold_over(step: Step, job: Job) -> None:
    holds = tuple([hold for hold in job.holds if hold.until_s is None or hold.until_s > step.now_s])
    if holds != job.holds:
        step.put(move(job.with_holds(holds), JobState.QUEUED, step.now_s, Reason(Why.BEGIN_REACHED)))


def cancel_requested(step: Step, event: CancelRequested) -> None:
    """A waiting job ends at once; a running one when its process is gone; an array with its elements."""
    job = step.state.jobs.get(event.job)
    reason = Reason(Why.CANCELLED, {"by": event.by})
    owner = arrays.owner_of(step, event.job) if job is None else None
    if owner is not None:
        ordinal = event.job - owner.id - 1
        _cancel(step, arrays.cancel(step, owner, ((ordinal, ordinal),), reason), reason)
    elif job is None:
        step.stale.append((event, "no such live job"))
    elif job.array is not None:
        _cancel(step, arrays.cancel(step, job, event.elements, reason), reason)
    else:
        _cancel(step, (job,), reason)


def _cancel(step: Step, jobs: Iterable[Job], reason: Reason) -> None:
    for job in jobs:
        if job.state is JobState.QUEUED:
            step.leave(job, JobState.CANCELLED, reason)
        elif job.state is JobState.STOPPING:
            step.put(ending_as(job, JobState.CANCELLED))
        else:
            step.stop(job, JobState.CANCELLED, reason)


def requeue_requested(step: Step, event: RequeueRequested) -> None:
    """A job that runs saves its state, if it has said how, and waits anew; nothing for one that waits or ends."""
    job = step.state.jobs.get(event.job)
    for element in arrays.jobs_of(step, job):
        requeue_requested(step, event._replace(job=element.id))
    if job is None:
        step.stale.append((event, "no such live job"))
    elif job.may_be_requeued:
        checkpointing.requeue(step, job, Reason(Why.REQUEUED, {"by": event.by}), is_own=event.is_own)


def node_registered(step: Step, event: NodeRegistered) -> None:
    """A node joins or comes back; jobs on GPUs it no longer has are treated as lost."""
    node = event.node
    known = step.state.nodes.get(node.name)
    if known is not None:
        was = known.node  # until a user says otherwise, or its time is over
        node = replace(node, drain=was.drain, notice=was.notice, closed=was.closed, reservations=was.reservations)
    before = known.node if known is not None else node
    if known is not None:
        is_same = known.node.pool == node.pool and bool(set(known.node.cores) & set(node.cores))
        keep, keeps_host = _same_gpus(known.node, node), is_same or not known.node.cores
        _lose_jobs(step, NodeLost(node.name), keep, keeps_host=keeps_host)
    step.state.put_node(node)
    if node.reservations and known is None:
        look_at_reservations(step)
    halting.came_back(step, node)
    fewer_cores.follow(step, node)
    step.touch(node.name)
    losses.lose_gpus(step, before, node)
    step.co_runners_changed(GpuId(node.name, gpu.index) for gpu in node.gpus)


def node_reserved(step: Step, event: NodeReserved) -> None:
    """A node is kept for others than before; jobs that are there go on."""
    known = step.state.nodes.get(event.node)
    if known is None:
        step.stale.append((event, "no such node"))
        return
    step.state.put_node(replace(known.node, reservations=event.reservations))
    step.touch(event.node)
    look_at_reservations(step)


def look_at_reservations(step: Step) -> None:
    """Every job may start on these nodes by now, or may not any more."""
    for job in list(step.state.jobs.values()):
        step.look_at_reservations(job)


def node_lost(step: Step, event: NodeLost) -> None:
    """A node is gone; its jobs are queued again within their limit."""
    if event.node not in step.state.nodes:
        step.stale.append((event, "no such node"))
        return
    _lose_jobs(step, event, keep=set())
    step.state.remove_node(event.node)
    step.lost_nodes.append(event.node)


def gpus_observed(step: Step, event: GpusObserved) -> None:
    """Health, foreign memory or the way of sharing changed; the set of GPUs did not."""
    known = step.state.nodes.get(event.node)
    if known is None:
        step.stale.append((event, "no such node"))
        return
    before, seen = known.node, {gpu.index: gpu for gpu in event.gpus}
    gpus = tuple(_observed(gpu, seen.get(gpu.index)) for gpu in known.node.gpus)
    if gpus != known.node.gpus:
        now = replace(known.node, gpus=gpus)
        step.state.put_node(now)
        step.touch(event.node)
        losses.lose_gpus(step, before, now)


def launched(step: Step, event: Launched) -> None:
    """The process of an attempt runs."""
    job = _believed(step, event, event.job, event.attempt)
    if job is None or job.state is not JobState.ASSIGNED:
        return
    start_s = max(event.start_s, job.submit_s)
    reason = Reason(Why.LAUNCHED, {"pid": event.pid, "node": job.placement.node if job.placement else ""})
    job = move(job, JobState.LAUNCHING, step.now_s, reason)
    job.run, job.totals = job.run._replace(start_s=start_s), job.totals._replace(sent_back=0)
    if job.first_start_s is None:
        job.first_start_s = start_s
    step.put(job)
    starting.set_timers(step, job, start_s)


def progressed(step: Step, event: Progressed) -> None:
    """A sample of a running attempt: it may reach its first step, or the last one asked for."""
    job = _believed(step, event, event.job, event.attempt)
    if job is None or job.placement is None or event.node not in ("", job.placement.node):
        return
    step.state.progress[job.id] = event.progress
    step.observe(job, event.progress)
    job = parking.memory_moved(step, job, event.progress)
    job = out_of_turns.told(step, job, event.progress)
    job = checkpointing.told(step, job, event.progress)
    job = reforming.told(step, job, event.progress)
    job, grown = learn_memory(step, job, event.progress)
    job = _past_total(step, job, event.progress)
    if event.progress.steps > 0:
        job = _first_step(step, job, event.progress)
    elif step.config.runs_at_once and event.progress.first_step_s is not None:
        job = job.of_run(job.run._replace(began_s=event.progress.first_step_s))
        step.put(job)
    limit = job.spec.steps_limit
    if limit is not None and event.progress.steps >= limit and job.state is not JobState.ASSIGNED:
        step.stop(job, JobState.SUCCEEDED, Reason(Why.STEPS_REACHED, {"steps": limit}))
    if grown is not None:
        step.grown.append(grown)


def ended(step: Step, event: Ended) -> None:
    """The processes of an attempt are gone from a node: the job ends or is queued again, once no node has any."""
    halting.part_ended(step, event)
    job = _believed(step, event, event.job, event.attempt)
    if job is None or job.placement is None or event.node in job.run.ended_on:
        return
    grown, is_on_one_node = None, step.is_on_one_node(job)
    if event.progress is not None and event.node in ("", job.placement.node):
        step.state.progress[job.id] = event.progress
        job, grown = learn_memory(step, job, event.progress)
        step.observe(job, event.progress)
    if job.id in step.state.progress and event.node in ("", job.placement.node if job.placement is not None else ""):
        attempt_ended(step, job)
    if job.run.start_s is None and event.start_s is not None:
        start_s = max(event.start_s, job.submit_s)
        job = job.of_run(job.run._replace(start_s=start_s))
        job.first_start_s = job.first_start_s or start_s
    if event.progress is not None and event.node in ("", job.placement.node if job.placement is not None else ""):
        job = _past_total(step, job, event.progress)
        _kept_to_total(step, job, event)
    if step.config.black_holes:
        black_holes.note(step, job, event)
    end_s = max(event.end_s, job.run.start_s or job.submit_s)
    has_succeeded = event.outcome == "exited" and event.exit.code == 0
    job = leaving.with_part_ended(job, event, has_succeeded=has_succeeded)
    is_stopping = leaving.is_stopping(job) and not leaving.has_ended_first(step, job, event, end_s)
    if checkpointing.is_saved(step, job, event):
        checkpointing.saved(step, job, event, end_s)
    elif has_succeeded and not is_stopping and is_on_one_node:
        step.learn_length(job)
        step.leave(job, JobState.SUCCEEDED, leaving.EXITED, end_s, event.exit)
    else:
        _ended_otherwise(step, job, event, end_s, has_succeeded=has_succeeded)
    if grown is not None:
        step.grown.append(grown)


FALSE_TOTAL_RATIO: Final = 1.1
"""A total is false where so many times as many steps are made: some scripts count a few more than they train for."""


def _past_total(step: Step, job: Job, progress: Progress) -> Job:
    """A job that goes on past its declared total is of unknown length, and a false total costs its owner the credit.

    Else one step left, as claimed, would go first every time. The totals of the owner's other jobs are not believed
    either, until `TRUTHS_MIN` jobs in a row have kept to theirs.
    """
    declared, usage = job.spec, step.state.usage
    total = declared.steps_total
    if total is None:
        return _with_said_total(step, job, progress)
    if progress.steps <= total:
        return job
    if job.spec.user and progress.steps > total * FALSE_TOTAL_RATIO and usage.truths_owed(job.spec.user) < TRUTHS_MIN:
        is_news = not usage.truths_owed(job.spec.user)
        usage.owe_truths(job.spec.user, TRUTHS_MIN, step.now_s)
        for other in list(step.state.jobs.values()) if is_news else ():
            if other.spec.user == declared.user and other.is_waiting and other.effective.steps_total is not None:
                step.put(_doubted(other))
    if job.constraints.steps_total_doubted:
        return job
    job = _doubted(job)
    step.put(job)
    return job


def _with_said_total(step: Step, job: Job, progress: Progress) -> Job:
    """A script that says how many steps it will make is believed until it has made more, unless its owner is not."""
    said = progress.steps_total or job.constraints.steps_total_said
    if said is not None and (progress.steps > said or step.state.usage.truths_owed(job.spec.user) > 0):
        said = None
    if said != job.constraints.steps_total_said:
        job = job.under(job.constraints._replace(steps_total_said=said))
        step.put(job)
    return job


def _doubted(job: Job) -> Job:
    return job.under(job.constraints._replace(steps_total_doubted=True))


def _kept_to_total(step: Step, job: Job, event: Ended) -> None:
    """A job whose owner's totals are doubted has ended by itself within its own."""
    declared, usage, progress = job.spec, step.state.usage, event.progress
    total, user = declared.steps_total, declared.user
    owed = usage.truths_owed(user)
    has_ended = event.outcome == "exited" and event.exit.code == 0 and job.state is not JobState.STOPPING
    if owed and has_ended and total is not None and progress is not None and 0 < progress.steps <= total:
        usage.owe_truths(user, owed - 1, step.now_s)


def _ended_otherwise(step: Step, job: Job, event: Ended, end_s: float, *, has_succeeded: bool) -> None:
    """It was asked to stop, has failed, or runs on several nodes."""
    if not (job.run.ended_on and job.ending):
        job = job.of_run(job.run._replace(exit=event.exit))
    co_runners = failing.co_runners(step, job) if event.outcome in failing.BESIDE_OTHERS else ()
    job = step.gone_from(job, event.node)
    has_ended_first = leaving.has_ended_first(step, job, event, end_s)
    if leaving.is_stopping(job) and job.ending is not None and not has_ended_first:
        if step.is_gone(job):
            leaving.left(step, job, event, end_s)
    elif not has_succeeded:
        failing.failed(step, job, event, end_s, co_runners)
    elif step.is_gone(job):
        step.learn_length(job)
        step.leave(job, JobState.SUCCEEDED, leaving.EXITED, end_s)


def bandwidth_observed(step: Step, event: BandwidthObserved) -> None:
    """How much bandwidth each job uses: `Contention` looks at it, and while it is short nothing is learnt."""
    node = step.state.nodes.get(event.node)
    if node is None:
        step.stale.append((event, "no such node"))
    else:
        node.bandwidth = event.sample


def profile_declared(step: Step, event: ProfileDeclared) -> None:
    """An owner states what is known of a family."""
    step.learn(event.profile)
    for pool in step.state.queues:
        step.state.changed_pools.add(pool)


def profiles_forgotten(step: Step, event: ProfilesForgotten) -> None:
    """A family is measured anew, as if none of its jobs had ever run."""
    step.forget(event.family)


def groups_seen(step: Step, event: GroupsSeen) -> None:
    """The user's jobs count for the limits of these groups from now on."""
    if step.state.limits is not None:
        step.state.limits.in_groups(event.user, event.groups, step.state.jobs.values())


def tick(step: Step, _event: Tick) -> None:
    """Time passed: policies that depend on it look at every pool anew."""
    step.state.changed_pools.update(step.state.queues)


def timer_due(step: Step, timer: Timer) -> None:
    """A timer fell due; one of an older attempt means nothing."""
    job = step.state.jobs.get(timer.job)
    if job is not None and timer.kind is TimerKind.HOLD_OVER:
        _hold_over(step, job)
        return
    if job is not None and timer.kind is TimerKind.RESERVED:
        step.look_at_reservations(job)
        return
    if job is None or job.attempt != timer.attempt or job.placement is None:
        return
    if timer.kind is TimerKind.TIME_LIMIT:
        _time_limit(step, job)
    elif timer.kind is TimerKind.CHECKPOINT_DUE:
        checkpointing.lead_over(step, job)
    elif timer.kind is TimerKind.PROTECTION_OVER and job.state is JobState.RUNNING_PROTECTED:
        _run(step, job, Why.PROTECTION_OVER)
    elif timer.kind is TimerKind.HALT_DUE:
        halting.order_due(step, job)
    elif timer.kind is TimerKind.TAKEN_TO_RUN and job.state is JobState.LAUNCHING:
        _run(step, job, Why.TAKEN_TO_RUN)


def _time_limit(step: Step, job: Job) -> None:
    """Stop a job whose time is up."""
    limit_s, due_s = job.effective.time_limit_s, step.limit_due_s(job)
    if job.state is JobState.PAUSED or limit_s is None or due_s is None:
        return  # it is timed anew when it is resumed
    if due_s > step.now_s:
        step.timers.set(due_s, TimerKind.TIME_LIMIT, job.id, job.attempt)
    else:
        left_s = (step.at_limit_s(job) or due_s) - step.now_s
        facts = {"limit_s": limit_s, "left_s": left_s}
        reason = Reason(Why.TOLD_OF_LIMIT, facts) if left_s > 0.0 else Reason(Why.TIME_LIMIT, {"limit_s": limit_s})
        is_requeued = job.leaving is not None and job.leaving.is_requeued
        step.stop(job, JobState.QUEUED if is_requeued else JobState.TIMED_OUT, reason)


def _run(step: Step, job: Job, why: Why) -> None:
    """From now on a plan may take the job off its GPUs."""
    step.put(move(job, JobState.RUNNING, step.now_s, Reason(why)))


def _believed(step: Step, event: Event, job_id: JobId, attempt: int) -> Job | None:
    """The job, if the report is of its present attempt."""
    job = step.state.jobs.get(job_id)
    if job is None:
        step.stale.append((event, "no such live job"))
        return None
    if job.attempt != attempt or job.placement is None:
        step.stale.append((event, f"attempt {attempt} is not attempt {job.attempt}"))
        return None
    return job


def _first_step(step: Step, job: Job, progress: Progress) -> Job:
    """Protect a job that has begun to step; one that was taken to run for its silence is only known better now."""
    first_s = progress.first_step_s if progress.first_step_s is not None else step.now_s
    was_silent = step.config.opaque_after_s > 0 and not step.config.runs_at_once
    is_late = was_silent and job.state is JobState.RUNNING and job.first_step_s is None
    if job.state is not JobState.LAUNCHING and not is_late:
        return job
    launch_s = max(0.0, first_s - (job.start_s if job.start_s is not None else first_s))
    stepping = move(job, JobState.RUNNING_PROTECTED, step.now_s, Reason(Why.STEPPING))
    stepping.run, stepping.falls_back = stepping.run._replace(first_step_s=first_s), None
    step.put(stepping)
    due_s = first_s + step.config.protection_factor * launch_s
    step.timers.set(due_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
    return stepping


def _same_gpus(old: Node, new: Node) -> set[int]:
    """Indexes under which both have the very same GPU."""
    if old.pool != new.pool:
        return set()
    identity = {gpu.index: (gpu.uuid, gpu.type) for gpu in old.gpus}
    return {gpu.index for gpu in new.gpus if identity.get(gpu.index) == (gpu.uuid, gpu.type)}


def _lose_jobs(step: Step, event: NodeLost, keep: set[int], *, keeps_host: bool = False) -> None:
    """Jobs of a node lose it, but those on GPUs to keep, and those without GPUs where it keeps its cores."""
    node = event.node
    reason = Reason(Why.NODE_LOST, {"node": node})
    for job_id in list(step.state.nodes[node].jobs):
        job = step.state.jobs[job_id]
        if job.resizes_to is not None and not all(slot.gpu.number in keep for slot in job.resizes_to.slots_on(node)):
            job = not_resized(job)
            step.rebook(job)
        slots = job.placement.slots_on(node) if job.placement is not None else ()
        is_on_it = job.placement is not None and node in job.placement.nodes
        is_kept = all(slot.gpu.number in keep for slot in slots) if slots else keeps_host
        if is_on_it and not is_kept and not halting.lose(step, job, event, reason):
            job = step.state.jobs[job_id]
            failing.lose(step, job if node in job.run.ended_on else step.gone_from(job, node), reason)


def _observed(known: Gpu, seen: Gpu | None) -> Gpu:
    if seen is None:
        return replace(known, healthy=False)
    return replace(
        known,
        healthy=seen.healthy,
        foreign_bytes=seen.foreign_bytes,
        others_ratio=seen.others_ratio,
        sharing=seen.sharing,
    )
