"""Ends of jobs that are on their way off their GPUs: one may have ended by itself before it was told to.

Then it is judged by how it ended, as if it had been heard in time: what has succeeded is not run again, and what has
failed is a failure. Its agent says which it was (`Ended.was_stopped`), for there alone the order and the end have one
clock; by that clock it is also judged whether a time limit was reached.
"""

from __future__ import annotations

from typing import Final

from colane.core.events import Ended
from colane.core.reducers import checkpointing, failing
from colane.core.reducers.step import Step
from colane.model.job import Job, JobState
from colane.model.reason import Reason, Why

EXITED: Final = Reason(Why.EXITED)

GOES_ON: Final = frozenset({JobState.QUEUED, JobState.TIMED_OUT})
"""Endings in whose place a failure counts; what is cancelled, or has lost its GPUs, is not to be retried for one."""


def is_stopping(job: Job) -> bool:
    """Whether a job goes where it is to go however its processes end."""
    return job.state is JobState.STOPPING or (job.leaving is not None and job.leaving.is_own_wish)


def has_ended_first(step: Step, job: Job, event: Ended, end_s: float) -> bool:
    """Whether a job that is to leave had ended by itself before it was told to, and so is not one that was stopped.

    A job on several nodes has where all its parts had left with 0: one that fails while others are stopped may have
    failed for want of those.
    """
    leaving = job.leaving
    if leaving is None or leaving.is_own_wish or event.was_stopped is not False or event.outcome in failing.NOT_ITS_OWN:
        return False
    at_s = step.at_limit_s(job) if leaving.ending is JobState.TIMED_OUT else None
    if at_s is not None and end_s >= at_s:
        return False
    if event.outcome == "exited" and event.exit.code == 0:
        return leaving.ending is not JobState.SUCCEEDED and not job.run.is_broken_off and step.is_gone(job)
    return leaving.ending in GOES_ON and not leaving.is_loss and step.is_on_one_node(job)


def with_part_ended(job: Job, event: Ended, *, has_succeeded: bool) -> Job:
    """Note of a job on several nodes that one of its parts was stopped, may have been, or has failed."""
    if Step.is_on_one_node(job) or job.run.is_broken_off or (has_succeeded and event.was_stopped is False):
        return job
    return job.of_run(job.run._replace(is_broken_off=True))


def left(step: Step, job: Job, event: Ended, end_s: float) -> None:
    """Its processes are gone, for it was told to end."""
    ending, reason = job.ending, job.reason or Reason(Why.SUBMITTED)
    if ending is JobState.QUEUED:
        checkpointing.go_on(step, job, reason)
    elif ending is JobState.TIMED_OUT:
        _leave_at_limit(step, job, reason, event, end_s)
    elif ending is not None:
        step.leave(job, ending, reason, end_s=end_s)


def _leave_at_limit(step: Step, job: Job, reason: Reason, event: Ended, end_s: float) -> None:
    """A job that is stopped for its time limit is gone, perhaps since before: told in advance, or not seen to end."""
    limit_s, at_s = job.effective.time_limit_s, step.at_limit_s(job)
    if limit_s is None or at_s is None:
        step.leave(job, JobState.TIMED_OUT, reason, end_s=end_s)
    elif job.effective.checkpoint is None:
        # an older agent does not say whether it was stopped, but how long it lasted is by its clock alone
        has_ended = event.was_stopped is None and end_s < at_s and job.run.exit is not None and job.run.exit.code == 0
        if has_ended:
            step.learn_length(job)
        state, why = (JobState.SUCCEEDED, EXITED) if has_ended else (JobState.TIMED_OUT, reason)
        step.leave(job, state, why, end_s=end_s)
    elif end_s >= at_s:
        step.leave(job, JobState.TIMED_OUT, Reason(Why.TIME_LIMIT, {"limit_s": limit_s}), end_s=end_s)
    elif _is_done(step, job):
        step.leave(job, JobState.SUCCEEDED, EXITED, end_s=end_s)
    else:
        facts: dict[str, str | int | float] = {"limit_s": limit_s, "left_s": at_s - end_s, "cause": _left_by(job)}
        step.leave(job, JobState.TIMED_OUT, Reason(Why.LEFT_BEFORE_LIMIT, facts), end_s=end_s)


def _left_by(job: Job) -> str:
    left, contract = job.run.exit, job.effective.checkpoint
    if left is None or left.code is None:
        return "no exit code" if left is None or left.signal is None else f"signal {left.signal}"
    saves = contract is not None and left.code in contract.saved_codes and left.code != 0
    return f"exit code {left.code}{': its state is saved' if saves else ''}"


def _is_done(step: Step, job: Job) -> bool:
    """Whether a job told of its limit in advance has left with 0, and no steps are known to lack.

    Slurm calls such a job COMPLETED (`sbatch --signal`), whatever steps it has made. One that leaves by a code of its
    contract is to go on later.
    """
    left, contract = job.run.exit, job.effective.checkpoint
    if left is None or left.code != 0:
        return False
    if contract is not None and contract.is_notice:
        return True
    progress = step.state.progress.get(job.id)
    total = job.effective.steps_total
    if total is None and progress is not None:
        total = progress.steps_total
    lacks = total is not None and (progress is None or progress.steps < total)
    return not lacks
