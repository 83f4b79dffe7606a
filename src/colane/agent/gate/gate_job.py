"""What the gate is told of a job, from what the scheduler wants of it."""

from __future__ import annotations

from colane.agent.gate.values import GateJob
from colane.agent.reconcile import DesiredJob


def gate_job(
    job: DesiredJob, *, kept: bool = False, on_cpu: bool = False, checked: bool = False, leaks: str = ""
) -> GateJob:
    """What the gate must know of a job; one that shall save or end goes first, so that it can.

    `kept` is one whose GPU memory is on the host, or that is not on its devices yet: it stays parked until it is. What
    is moved to the host is moved without its caches. `on_cpu` is one on cpu devices. `checked` is one that
    stays at its boundary to be looked at, and `leaks` says why one has no turns.
    """
    return GateJob(
        job=job.key.job,
        lanes=tuple(sorted(set(zip(job.gpus, job.lanes, strict=True)))),
        weight=job.weight,
        priority=job.priority,
        answers=job.serves,
        serves=job.serves or not job.run or job.save is not None,
        steps_total=job.steps_total,
        paused=(job.paused or kept or checked) and job.run,
        flush=job.flush or job.to_host,
        hold=(job.to_host or kept) and job.run,
        at_rest=job.to_host and job.at_rest and job.run,
        must_rest=not on_cpu,
        memory=job.memory,
        leaks=leaks,
    )
