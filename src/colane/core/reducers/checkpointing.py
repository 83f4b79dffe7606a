"""Stopping a job that is to go on later: it is asked to save its state first, and has so long for it.

A job that is resized and does not save keeps its size; one that is stopped for others is stopped all the same. A job
that has failed at it too often is not stopped for others any more. Paper E, 4.2 (its application master).
"""

from __future__ import annotations

from colane.core.events import Ended
from colane.core.lifecycle import move
from colane.core.reducers import starting
from colane.core.reducers.saved import has_saved, is_complete
from colane.core.reducers.step import Step
from colane.core.reducers.suspicions import QUICK_S
from colane.core.reducers.timers import TimerKind
from colane.model.checkpoint import CHECKPOINT_PRESETS
from colane.model.job import Job, JobState, Leaving
from colane.model.job_spec import CheckpointContract
from colane.model.placement import Placement
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.model.words import count

NOISE_RATIO_MIN = 0.1  # a smaller change of a job's gradient noise is none

ASKABLE = frozenset({JobState.RUNNING, JobState.RUNNING_PROTECTED, JobState.PAUSED})


def part(step: Step, job: Job, reason: Reason, leaving: Leaving) -> None:
    """Stop a job that goes on later, after it has saved its state if it has said how; it holds its GPUs meanwhile."""
    contract, now_s = job.effective.checkpoint, step.now_s
    if contract is None or job.state not in ASKABLE or job.is_on_host or job.parked:
        job = move(job, JobState.STOPPING, now_s, reason)
    else:
        job = move(job, JobState.CHECKPOINTING, now_s, reason)
        job.run = job.run._replace(saves_asked=job.run.saves_asked + 1)
        set_timer(step, job, contract)
    job.leaving = leaving
    if leaving.resizes_to is None:
        step.put(job)
    else:
        step.rebook(job)


def requeue(step: Step, job: Job, reason: Reason, *, is_own: bool) -> None:
    """Have a job wait anew, which runs or is on its way off its GPUs, to wait or for its time limit.

    One that asks for it itself has saved what it needs, and is not asked to. How often in a row one has not run long
    by then is counted, whoever asks: see `Step.leave`.
    """
    before = job.leaving
    if before is None or not before.is_requeued:
        has_run = job.start_s is not None and step.now_s >= job.start_s + QUICK_S
        job = job.with_totals(job.totals._replace(requeued=0 if has_run else job.totals.requeued + 1))
    if before is None and is_own:
        job = move(job, JobState.STOPPING, step.now_s, reason)
    elif before is None:
        part(step, job, reason, Leaving(JobState.QUEUED, is_requeued=True))
        return
    elif before.ending is not JobState.QUEUED:
        job = move(job, JobState.STOPPING, step.now_s, reason)
    else:
        job = job.copied()
    is_own = is_own or (before is not None and before.is_own_wish)
    known = before or Leaving(JobState.QUEUED)
    job.leaving = known._replace(ending=JobState.QUEUED, resizes_to=None, is_requeued=True, is_own_wish=is_own)
    if known.resizes_to is None:
        step.put(job)
    else:
        step.rebook(job)


def set_timer(step: Step, job: Job, contract: CheckpointContract) -> None:
    """When its time to save is over."""
    since_s = job.since_s if job.since_s is not None else step.now_s
    step.timers.set(since_s + contract.lead_s, TimerKind.CHECKPOINT_DUE, job.id, job.attempt)


def lead_over(step: Step, job: Job) -> None:
    """Its time to save is over, unless the timer is one of an earlier asking."""
    contract = job.effective.checkpoint
    if job.state is not JobState.CHECKPOINTING or contract is None or job.since_s is None:
        return
    if step.now_s < job.since_s + contract.lead_s:
        return
    facts: dict[str, str | int | float] = {"signal": contract.signal, "lead_s": contract.lead_s}
    job = _failed_once_more(step, job)
    has_saved_now = job.saved_s is not None and job.since_s is not None and job.saved_s >= job.since_s
    if job.resizes_to is not None and not job.run.ended_on and not has_saved_now:
        _stay(step, job, Why.CHECKPOINT_TIMED_OUT, facts)
    else:
        reason = Reason(Why.CHECKPOINT_TIMED_OUT, {**facts, "then": "it is stopped all the same"})
        step.put(move(job, JobState.STOPPING, step.now_s, reason))


def told(step: Step, job: Job, progress: Progress) -> Job:
    """Believe a sample: what is saved, what kept a job that was asked from it, how noisy its gradients are.

    And that it saves by itself.
    """
    if progress.saved_s is not None and (job.saved_s is None or progress.saved_s > job.saved_s):
        job = job.copied()
        job.saved_s = progress.saved_s
        step.put(job)
    if progress.noise_scale is not None and _differs(progress.noise_scale, job.noise_scale):
        job = job.copied()
        job.noise_scale = progress.noise_scale
        step.put(job)
    if progress.saves and job.effective.checkpoint is None and job.totals.saves_failed < step.config.saves_failed_max:
        job = job.under(job.constraints._replace(checkpoint=CHECKPOINT_PRESETS["plain"]))
        step.put(job)
        step.set_limit_timer(job)
    is_answer = progress.save_problem != "" and progress.saves_asked == job.run.saves_asked
    is_asked = job.state is JobState.CHECKPOINTING and not (job.leaving is not None and job.leaving.is_own_wish)
    if is_asked and is_answer and not job.run.ended_on:
        job = _stay(step, _failed_once_more(step, job), Why.CHECKPOINT_FAILED, {"problem": progress.save_problem})
    return job


def _differs(said: float, known: float | None) -> bool:
    """Whether it matters: noise is known roughly at best, and each change is stored."""
    return known is None or abs(said - known) > NOISE_RATIO_MIN * known


def _failed_once_more(step: Step, job: Job) -> Job:
    """One that has failed so often would lose what it has done, so it is not stopped for others any more."""
    job = job.with_totals(job.totals._replace(saves_failed=job.totals.saves_failed + 1))
    return (
        job
        if job.totals.saves_failed < step.config.saves_failed_max
        else job.under(job.constraints._replace(not_preemptible=True))
    )


def _stay(step: Step, job: Job, why: Why, facts: dict[str, str | int | float]) -> Job:
    """It goes on as it was, and is left alone for so many of its times to save as others of their launches."""
    then = f"it goes on with {count(job.gpu_count, 'GPU')}, as before"
    if not job.effective.preemptible:
        then = f"{then}, and is not stopped for others any more ({count(job.totals.saves_failed, 'time')})"
    to = JobState.PAUSED if job.suspended else JobState.RUNNING_PROTECTED
    stays = move(job, to, step.now_s, Reason(why, {**facts, "then": then}))
    step.rebook(stays)
    lead_s = job.effective.checkpoint.lead_s if job.effective.checkpoint is not None else 0.0
    due_s = step.now_s + step.config.protection_factor * lead_s
    step.timers.set(due_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
    return stays


def is_saved(step: Step, job: Job, event: Ended) -> bool:
    """Whether an attempt has left with its state saved, to go on later, and was not to end for good."""
    if event.outcome != "exited" or not has_saved(job, event.exit.code):
        return False
    if event.was_stopped is False and not job.run.is_broken_off:
        return False  # it had ended before it was asked
    progress = event.progress or step.state.progress.get(job.id)
    return job.ending in (None, JobState.QUEUED) and not is_complete(job, progress, event.exit.code)


def saved(step: Step, job: Job, event: Ended, end_s: float) -> None:
    """Once it is gone from all its nodes it goes on where it is to, or waits like others."""
    job = job.copied()
    job.run, job.saved_s = job.run._replace(exit=event.exit), end_s
    job = step.gone_from(job, event.node)
    if step.is_gone(job):
        go_on(step, job, Reason(Why.SAVED) if job.reason is None or job.ending is None else job.reason)
    else:
        step.put(job)


def died(step: Step, job: Job, cause: Reason) -> None:
    """It ended badly while it saved its state: that is put down to the saving, not to the job."""
    job = _failed_once_more(step, job)
    reason = Reason(Why.CHECKPOINT_DIED, {"cause": sentence_of(cause)})
    if step.is_gone(job):
        go_on(step, job, reason)
    else:
        step.put(move(job, JobState.STOPPING, step.now_s, reason))


def go_on(step: Step, job: Job, reason: Reason) -> None:
    """A job whose processes are gone starts where it is to, else it waits like others."""
    had, resizes_to = job.placement, job.resizes_to
    step.leave(job, JobState.QUEUED, reason)
    if resizes_to is not None:
        starting.restart(step, step.state.jobs[job.id], resizes_to, reason, had)


def launch_failed(step: Step, job: Job, cause: Reason, end_s: float) -> bool:
    """A job that was resized has not come up: it goes back to where it ran, or waits; False where that was tried.

    The size at which it does not come up is none of its sizes any more.
    """
    fall = job.falls_back
    if fall is None or job.first_step_s is not None or fall.launches_failed > 1:
        return False
    is_first, back = fall.launches_failed == 0, fall.to
    then = f"it goes back to {len(back.slots)}" if is_first else "it waits for another try"
    facts: dict[str, str | int | float] = {"gpus": job.gpu_count, "cause": sentence_of(cause), "then": then}
    job = job.copied()
    job.falls_back = fall._replace(launches_failed=fall.launches_failed + 1)
    if is_first:
        job = _without_size(job, job.gpu_count, back)
    step.finish(job, JobState.QUEUED, Reason(Why.RESIZE_FAILED, facts), end_s)
    queued = step.state.jobs[job.id]
    if is_first and queued.state is JobState.QUEUED:
        starting.restart(step, queued, back, queued.reason or Reason(Why.SAVED), back)
    return True


def _without_size(job: Job, gpus: int, back: Placement) -> Job:
    """The job without a size, unless it is the only one or that which it goes back to."""
    if all(size == gpus for size in job.effective.sizes) or len(back.slots) == gpus:
        return job
    return job.under(job.constraints._replace(sizes_lost=(*job.constraints.sizes_lost, gpus)))
