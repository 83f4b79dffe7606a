"""Deadlines of jobs that are submitted: each is promised, with the GPUs that keep it, or the job is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from colane.core import Core
from colane.core.cluster.view import ClusterView
from colane.core.events import Submitted
from colane.model.job import JobId
from colane.model.problem import Problem
from colane.scheduling.mechanisms.deadlines.seats import NEWCOMER, Allowed, ComingPromise, NoPromise, promise
from colane.server.http.problems import RefusedError
from colane.server.submitting.admission import Admitted
from colane.server.writer.turn import Turn

STOP_S: Final = 30.0
"""From the decision to stop a job, beside its lead, until its GPUs are known to be free: agents' grace, and reports."""

LAUNCH_S: Final = 60.0
"""From the start of a process to its first step, where a framework is loaded."""


def with_promises(core: Core, turn: Turn, jobs: Sequence[Admitted]) -> list[Admitted]:
    """Return the jobs, those with a deadline with the GPUs by which it is kept.

    Raises:
        RefusedError: 422, one cannot be, with the earliest deadline that can.
    """
    if all(job.spec.deadline_s is None for job in jobs):
        return list(jobs)
    view = ClusterView(core.state, turn.now_s)
    settle_s = core.config.protection_factor * LAUNCH_S
    allowed = Allowed(stop_s=STOP_S, launch_s=LAUNCH_S, settle_s=settle_s)
    come = [event for event in turn.events if isinstance(event, Submitted)]
    coming = [ComingPromise(one.job, one.spec, one.promised) for one in come if one.promised is not None]
    found = list[Admitted]()
    for position, job in enumerate(jobs):
        if job.spec.deadline_s is None:
            found.append(job)
            continue
        is_held = bool(job.holds or job.is_singleton or job.array)
        made = promise(view, job.spec, allowed, coming, core.limits, core.config.limits, is_held=is_held)
        if isinstance(made, NoPromise):
            raise RefusedError(422, [Problem(f"jobs[{position}].deadline_s", made.problem)])
        coming.append(ComingPromise(JobId(NEWCOMER + position - len(jobs)), job.spec, made))
        found.append(replace(job, promised=made))
    return found
