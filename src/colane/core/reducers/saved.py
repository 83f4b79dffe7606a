"""What a job is known to have saved of its state, by the code its process left with and by what it reports."""

from __future__ import annotations

from colane.model.job import Job
from colane.model.job_spec import JobKind
from colane.model.progress import Progress


def lost_part(job: Job, progress: Progress | None, kept: int) -> float:
    """Part of the steps made by this attempt, 0..1, that the next one does not go on from; 0 where none were seen.

    Nothing of a server: what it has answered is not asked again.
    """
    if progress is None or progress.steps <= 0 or job.spec.kind is JobKind.INFERENCE:
        return 0.0
    made = progress.steps - job.totals.steps_kept if progress.steps > job.totals.steps_kept else progress.steps
    return min(1.0, max(0.0, (progress.steps - kept) / made))


def has_saved(job: Job, code: int | None) -> bool:
    """Whether a process that has left with this code says by it that its state is saved: it was asked to."""
    contract = job.effective.checkpoint
    return contract is not None and job.run.saves_asked > 0 and code in contract.saved_codes


def is_complete(job: Job, progress: Progress | None, code: int | None) -> bool:
    """Whether it has left with 0 after all of its steps, as far as it is known how many they are."""
    if code != 0 or progress is None:
        return False
    total = job.effective.steps_total or progress.steps_total
    return total is not None and progress.steps >= total


def steps_kept(job: Job, progress: Progress | None, *, is_loss: bool = False) -> int:
    """Steps that the next attempt of a job which leaves its GPUs now goes on from.

    As it says itself. One that says nothing keeps what it has made where it has left as one that has saved; without a
    contract it is unknown, and it is taken to have saved, but where it was lost with its node.
    """
    if progress is None or not job.effective.preemptible:
        return job.totals.steps_kept
    if progress.steps_saved is not None:
        return progress.steps_saved
    left = job.run.exit
    code = left.code if left is not None else None
    if is_loss or (job.effective.checkpoint is not None and not has_saved(job, code)):
        return job.totals.steps_kept
    return max(job.totals.steps_kept, progress.steps)
