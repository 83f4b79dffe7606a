"""Elastic jobs that run: which may be resized now, and how fast they go at each size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobState
from colane.model.profile import ValueSource
from colane.perf.rate import Situation
from colane.perf.scaling import efficiency
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.indexes import JobsOfKind
from colane.scheduling.engine.times import gpu_type_of, present_s

FIRST_STEP_MAX_S: Final = 600.0
"""A job that has shown no step for so long is not waited for."""

REGAINS: Final = 3.0
"""So many times its first restart must a job regain that grows."""

FORGIVEN_S: Final = 600.0
"""After so long at one size a further move is half as dear, so that none stays for ever at the size it once had."""

MOVES_MAX: Final = 4
STAYS_S: Final = 1800.0
"""After so many moves a job gives up no GPUs for others, but one more time for each so many seconds at one size."""

SEEN: Final = (ValueSource.MEASURED, ValueSource.PREDICTED)
"""Step times that rest on steps that were really made."""


def efficiency_at(job: Job, gpus: int) -> float:
    """What a sample is worth with so many GPUs, against one GPU: less in larger batches.

    1 where the batch does not grow with the GPUs, or where the job says nothing of the noise of its gradient.
    """
    each, noise = job.spec.batch_size, job.noise_scale
    if not job.spec.batch_per_gpu or each is None or noise is None:
        return 1.0
    return efficiency(noise, each, each * gpus)


def steps_per_s(draft: Draft, job: Job, gpus: int, *, spans: bool | None = None) -> float:
    """Throughput of a job alone with so many GPUs; in parts of that at the size it asked for, while none is known.

    What is known of one of its sizes gives the unit of the others: steps per second are not weighed against parts.

    Args:
        draft: Decisions so far.
        job: The job.
        gpus: How many GPUs.
        spans: Whether these lie on several nodes; None asks wherever it was seen.
    """
    gpu_type = gpu_type_of(draft.view, job) or ""
    rate = draft.beliefs.rate(job.effective, Situation(gpu_type, gpus, spans=spans))
    if rate.steps_per_s is not None:
        return rate.steps_per_s * _batches(job, gpus)
    for size in sorted(job.effective.sizes, key=lambda size: (abs(size - gpus), size)):
        known = draft.beliefs.rate(job.effective, Situation(gpu_type, size))
        if known.steps_per_s is not None:
            return known.steps_per_s * _batches(job, size) * rate.ratio / known.ratio
    return rate.ratio


def _batches(job: Job, gpus: int) -> int:
    """How many batches as asked for a step takes: with one of each GPU, as many as there are."""
    return gpus if job.spec.batch_per_gpu else 1


def is_resizable(draft: Draft, job: Job) -> bool:
    """Whether a running job may be given another number of GPUs now: it is undecided, and shares none with others."""
    if not job.effective.sizes or not job.effective.preemptible or job.state is not JobState.RUNNING or job.parked:
        return False
    if not draft.is_undecided(job.id) or _comes_up(draft, job):
        return False
    return all(len(load.bookings) == 1 for load in map(draft.load, job.gpus_held))


def dearer(job: Job, now_s: float) -> float:
    """So many times its restart a job must regain that grows: the more the more often it was moved, if lately."""
    return REGAINS * max(1.0, 2.0**job.moves / (1.0 + present_s(job, now_s) / FORGIVEN_S))


def may_move(job: Job, now_s: float) -> bool:
    """Whether a job may be resized once more for others."""
    return job.moves < MOVES_MAX + present_s(job, now_s) // STAYS_S


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
