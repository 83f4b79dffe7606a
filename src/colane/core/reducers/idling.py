"""Parking jobs that hold GPUs and use none, by the rule for idle jobs.

Such a job makes no step, so it is not waited for at a boundary: it leaves its GPUs where it stands, and both a plan and
a user would take it for one that is suspended while it waits parked. Its next step shows that it would go on: from then
on it waits for GPUs of its home as any parked job. That has to be seen, by its agent (`Progress.rest`), or it would
wait for ever: one of which it cannot be seen is not parked.
"""

from __future__ import annotations

from typing import Final

from colane.core.cluster.state import ClusterState
from colane.core.cluster.to_host import is_on_cpu_devices, parking_refusal
from colane.core.events import IdleParkRequested
from colane.core.lifecycle import move
from colane.core.reducers.step import Step
from colane.model.job import Job, JobState, Parking, SuspendVia, Suspension
from colane.model.progress import MAY_REST, Progress
from colane.model.reason import Reason, Why

BY_THE_RULE: Final = "the rule for idle jobs"  # who parks it


def refusal(state: ClusterState, job: Job, progress: Progress | None) -> str | None:
    """Why an idle job may not be parked, in one line; None when it may.

    Args:
        state: Where it runs.
        job: The job, as it is known by now.
        progress: Its latest sample.
    """
    problem = parking_refusal(state, job)
    if problem is None and (progress is None or progress.rest != MAY_REST):
        problem = f"it would not be seen that job {job.id} wants to step again"
        if not is_on_cpu_devices(state, job):
            problem += ": no process of it that reports steps can be watched, nor is it a notebook between two cells"
    return problem


def idle_park_requested(step: Step, event: IdleParkRequested) -> None:
    """Have an idle job leave its GPUs; it holds them until its agent says that it has."""
    job = step.state.jobs.get(event.job)
    problem = "no such live job" if job is None else refusal(step.state, job, step.state.progress.get(event.job))
    if job is None or problem is not None:
        step.stale.append((event, problem or ""))
        return
    step.co_runners_changed(job.gpus_held)
    reason = Reason(Why.IDLE_PARKED, {"idle_s": event.idle_s, "gpu": ", ".join(map(str, job.gpus_held))})
    parked = move(job, JobState.PAUSED, step.now_s, reason)
    parked.parking, parked.suspension = Parking(), Suspension(SuspendVia.HOST, BY_THE_RULE, until_step=True)
    step.put(parked)
