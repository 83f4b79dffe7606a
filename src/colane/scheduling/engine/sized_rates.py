"""How fast a job is with each number of GPUs that it can run on, and what it has left with them."""

from __future__ import annotations

from math import inf

from colane.core.cluster.draft import Draft
from colane.model.job import Job
from colane.model.profile import ValueSource
from colane.perf.rate import Situation
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.times import gpu_type_of


def efficiency(noise_scale: float, batch_from: int, batch: int) -> float:
    """What a sample teaches in steps of so many, against steps of `batch_from` (Pollux: Qiao et al., OSDI 2021, eq. 5).

    Args:
        noise_scale: Of the gradient, in samples (McCandlish et al., 2018); infinite where batches may be of any size.
        batch_from: Samples of a step, at least 1.
        batch: The same.
    """
    return 1.0 if noise_scale == inf else (noise_scale + batch_from) / (noise_scale + batch)


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
    spec, gpu_type = job.effective, gpu_type_of(draft.view, job) or ""
    known = draft.view.derived(LiveJobs).kept(draft.view, spec.pool).sized
    asked = (spec.need, gpu_type, job.spec.batch_per_gpu, gpus, spans)
    if asked not in known:
        known[asked] = _steps_per_s(draft, job, Situation(gpu_type, gpus, spans=spans))
    return known[asked]


def _steps_per_s(draft: Draft, job: Job, there: Situation) -> float:
    gpus, gpu_type = there.gpus or job.effective.gpus, there.gpu_type
    rate = draft.beliefs.rate(job.effective, there)
    if rate.steps_per_s is not None:
        return rate.steps_per_s * _batches(job, gpus)
    for size in sorted(job.effective.sizes, key=lambda size: (abs(size - gpus), size)):
        known = draft.beliefs.rate(job.effective, Situation(gpu_type, size))
        if known.steps_per_s is not None:
            return known.steps_per_s * _batches(job, size) * rate.ratio / known.ratio
    return rate.ratio


def counts_steps(draft: Draft, job: Job) -> bool:
    """Whether that is in steps of its own, not in parts of a speed or in seconds of work a second."""
    spec, kind = job.effective, gpu_type_of(draft.view, job) or ""
    if (spec.family, spec.batch_size) in draft.beliefs.in_seconds:
        return False
    return any(draft.beliefs.rate(spec, Situation(kind, n)).steps_per_s is not None for n in spec.sizes or (spec.gpus,))


def _batches(job: Job, gpus: int) -> int:
    """How many batches as asked for a step takes: with one of each GPU, as many as there are."""
    return gpus if job.spec.batch_per_gpu else 1


def goodput(draft: Draft, job: Job, gpus: int, *, spans: bool | None = None, counts_noise: bool = True) -> float:
    """Throughput of a job by what its steps teach, told its places (`spans`) where these are not in what was seen."""
    is_open = spans is None or not job.spec.multi_node or _is_seen_apart(draft, job, gpus)
    told = None if is_open else spans
    return steps_per_s(draft, job, gpus, spans=told) * (efficiency_at(job, gpus) if counts_noise else 1.0)


def left_with_s(draft: Draft, queue: BoundOrder, job: Job, gpus: int, *, spans: bool | None = None) -> float | None:
    """What a job is expected to have left with so many GPUs; endless where it cannot run with them.

    None where it is not known.
    """
    left_s = queue.left_s(job)
    if left_s is None or gpus == job.effective.gpus:
        return left_s
    rate = goodput(draft, job, gpus, spans=spans)
    return left_s * goodput(draft, job, job.effective.gpus) / rate if rate > 0 else inf


def most_on_a_node(draft: Draft) -> int:
    """GPUs of the largest node that takes jobs."""
    return draft.view.derived(LiveJobs).most_on_a_node(draft.view)


def _is_seen_apart(draft: Draft, job: Job, gpus: int) -> bool:
    """Whether so many GPUs fit no node, and its kind's step time with them is known: that is of several nodes."""
    if gpus <= most_on_a_node(draft):
        return False
    rate = draft.beliefs.rate(job.effective, Situation(gpu_type_of(draft.view, job) or "", gpus))
    return rate.alone is not None and rate.alone.source is not ValueSource.PREDICTED
