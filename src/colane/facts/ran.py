"""How long a job has run, by its own record."""

from __future__ import annotations

from colane.model.job import Job, Served


def present_s(job: Job, now_s: float) -> float:
    """How long the present attempt has run, pauses left out."""
    if job.placement is None or job.start_s is None:
        return 0.0
    return max(0.0, now_s - job.start_s - job.paused_s(now_s))


def worked_s(job: Job, now_s: float) -> float:
    """How long the present attempt has made steps, as far as is known: its launch leaves no work behind."""
    start_s, since_s = job.start_s, job.began_s
    launch_s = 0.0 if start_s is None or since_s is None else since_s - start_s
    return max(0.0, present_s(job, now_s) - launch_s)


def at_present_size(served: Served, job: Job) -> float:
    """How many of the seconds a job would have had that it had with as many GPUs as it has now, or asks for."""
    return (served.gpus or job.effective.gpus) / job.gpu_count if job.gpu_count else 1.0


def earlier_s(job: Job) -> float:
    """How long the attempts before the present one have run, as seconds with as many GPUs as now."""
    return sum([served.run_s * at_present_size(served, job) for served in job.totals.served])


def attained_s(job: Job, now_s: float) -> float:
    """How long a job has run over all its attempts."""
    return earlier_s(job) + present_s(job, now_s)


def had_s(job: Job, now_s: float) -> float:
    """What service a job has had that counts: all, or of one that starts anew each time, that of its attempt."""
    return (attained_s if job.effective.preemptible else present_s)(job, now_s)


def steps_told(job: Job) -> int | None:
    """Steps until a job is done, by its owner's word or its script's, as far as that is believed, and by its limit."""
    told = [each for each in (job.effective.steps_total, job.spec.steps_limit) if each is not None]
    return min(told, default=None)


def limit_left_s(job: Job, now_s: float) -> float | None:
    """How long it may still run: pauses do not count. None of a job without a limit, and of one that has no place."""
    limit_s = job.effective.time_limit_s
    if limit_s is None or job.placement is None:
        return None
    return max(0.0, limit_s - present_s(job, now_s))
