"""Elastic jobs that run, and which may be resized now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from colane.core.cluster.contents import JobsOfKind
from colane.core.cluster.draft import Draft
from colane.facts.ran import present_s
from colane.model.job import Job, JobState
from colane.model.profile import ValueSource
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.times import gpu_type_of

FIRST_STEP_MAX_S: Final = 600.0  # a job that has shown no step for so long is not waited for

SEEN: Final = (ValueSource.MEASURED, ValueSource.PREDICTED)  # step times that rest on steps that were really made


def is_resizable(draft: Draft, job: Job) -> bool:
    """Whether a running job may be given another number of GPUs now: it is undecided, and shares none with others."""
    if not job.effective.sizes or not job.effective.preemptible or job.state is not JobState.RUNNING or job.parked:
        return False
    if not draft.is_undecided(job.id) or _comes_up(draft, job):
        return False
    return all(len(load.bookings) == 1 for load in map(draft.load, job.gpus_held))


def _comes_up(draft: Draft, job: Job) -> bool:
    """Whether a job that is taken to run for its silence is likely to make its first step yet: its kind was seen to.

    Resizing it now would throw its launch away, again and again where launches take longer than others come.
    """
    if job.first_step_s is not None or draft.view.steps_unseen:
        return False
    if present_s(job, draft.now_s) > FIRST_STEP_MAX_S:
        return False
    alone = draft.beliefs.rate(job.effective, Situation(gpu_type_of(draft.view, job) or "", job.gpu_count)).alone
    return job.totals.steps_kept > 0 or (alone is not None and alone.source in SEEN)


def elastic_jobs(context: SchedulingContext) -> Iterator[Job]:
    """Running jobs of the pool of several sizes, in order of id."""
    view = context.draft.view
    for job_id in sorted(view.derived(ElasticJobs).of(context.pool)):
        yield view.job(job_id)


class ElasticJobs(JobsOfKind):
    """Jobs of several sizes that hold GPUs, by pool; kept from one plan to the next."""

    def belongs(self, job: Job) -> bool:
        return bool(job.effective.sizes) and job.placement is not None and not job.home
