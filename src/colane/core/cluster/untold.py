"""Which jobs tell no length: of these it is learnt how long those of their family run."""

from __future__ import annotations

from colane.model.job import Job, JobKind
from colane.model.progress import Progress


def may_be_untold(job: Job) -> bool:
    """Whether a job's length is learnt unless it counts the steps that it declares."""
    spec = job.effective
    return spec.time_limit_s is None and spec.gpus > 0 and spec.kind is not JobKind.INFERENCE


def is_untold(job: Job, progress: Progress | None) -> bool:
    """Whether it is: steps tell a length only where they are counted; of a script that says none, it is as unknown."""
    spec = job.effective
    if not may_be_untold(job):
        return False
    is_told = spec.steps_total is not None and job.constraints.steps_total_said is None  # by its owner
    if not is_told and spec.steps_limit is None:
        return True
    return not job.totals.steps_kept and (progress is None or progress.steps <= 0)
