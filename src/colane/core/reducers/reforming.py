"""A job that goes on as fewer ranks without a restart, its state saved: one attempt, of another size from then on.

It is asked as any other that is resized (`checkpointing`), and told as how many it is to go on. Where it leaves
instead, dies or does not answer, that becomes of it which becomes of every job that saves (decision 26).
"""

from __future__ import annotations

from colane.core.lifecycle import move
from colane.core.reducers.saved import steps_kept
from colane.core.reducers.step import Step
from colane.core.reducers.timers import TimerKind
from colane.model.job import Job, JobState
from colane.model.placement import Placement
from colane.model.progress import Progress
from colane.model.reason import Reason, Why

ABLE = (JobState.RUNNING, JobState.RUNNING_PROTECTED, JobState.PAUSED)


def ranks_wanted(job: Job) -> int:
    """As how many ranks a job that saves its state is to go on without a restart; 0: it is to leave.

    Those it keeps must be its first ones: the others' numbers would change, and with them their devices.
    """
    contract, has, to = job.effective.checkpoint, job.placement, job.resizes_to
    if job.state is not JobState.CHECKPOINTING or contract is None or not contract.reforms or to is None or has is None:
        return 0
    count = len(to.slots)
    return count if len(has.nodes) == 1 and count < len(has.slots) and has.gpus[:count] == to.gpus else 0


def told(step: Step, job: Job, progress: Progress) -> Job:
    """Believe a sample: it can do so; it has; or it has done so too late, and has to be restarted.

    Unasked that is a failure of its own, within its retries: a page may say it in every attempt. No job has more ranks
    than GPUs.
    """
    contract = job.effective.checkpoint
    if progress.reforms and contract is not None and not contract.reforms:
        now = contract._replace(reforms=True, saved_codes=tuple([code for code in contract.saved_codes if code]))
        job = job.under(job.constraints._replace(checkpoint=now))
        step.put(job)
    wanted = ranks_wanted(job)
    if wanted and progress.ranks == wanted and job.resizes_to is not None:
        return _goes_on(step, job, job.resizes_to, progress)
    if 0 < progress.ranks < job.gpu_count and job.state in ABLE:
        facts: dict[str, str | int | float] = {"ranks": progress.ranks, "gpus": job.gpu_count}
        if not job.run.saves_asked:
            job = job.with_totals(job.totals._replace(failures=job.totals.failures + 1))
        ending = JobState.QUEUED if job.totals.failures <= job.spec.retries else JobState.FAILED
        step.stop(job, ending, Reason(Why.REFORMED_LATE, facts), has_failed=not job.run.saves_asked)
        return step.state.jobs[job.id]
    return job


def _goes_on(step: Step, job: Job, to: Placement, progress: Progress) -> Job:
    """What it gives up is free; what it has had with all of them is counted, and its time with the others begins."""
    had, asked_s = job.gpus_held, job.since_s if job.since_s is not None else step.now_s
    launch_s = job.run.launch_s
    if launch_s is None and job.start_s is not None and job.first_step_s is not None:
        launch_s = max(0.0, job.first_step_s - job.start_s)
    step.cut(job)
    reason = Reason(Why.REFORMED, {"gpus": len(to.slots), "had": job.gpu_count})
    to_state = JobState.PAUSED if job.suspended else JobState.RUNNING_PROTECTED
    goes_on = move(job, to_state, step.now_s, reason)
    goes_on.placement = to
    goes_on.run = goes_on.run._replace(
        assigned_s=step.now_s, start_s=step.now_s, first_step_s=step.now_s, launch_s=launch_s, paused_before_s=0.0
    )
    goes_on.totals = job.totals._replace(served=step.served(job), steps_kept=steps_kept(job, progress))
    step.rebook(goes_on)
    step.co_runners_changed(had)
    due_s = step.now_s + step.config.protection_factor * (step.now_s - asked_s)
    step.timers.set(due_s, TimerKind.PROTECTION_OVER, job.id, job.attempt)
    return goes_on
