"""Jobs that enter the queue: as they were submitted, or as elements of an array that was."""

from __future__ import annotations

from typing import Final

from colane.core.cluster.useful_cores import start_cores_of
from colane.core.reducers.sharing_domains import sharing_domain
from colane.core.reducers.step import Step
from colane.model import arrays
from colane.model.constraints import Constraints
from colane.model.hold import Hold, HoldKind
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.phases import Array
from colane.model.reason import Reason, Why
from colane.model.story import StateChange

SUBMITTED: Final = Reason(Why.SUBMITTED)
ARRAY_HOLD: Final = Hold(HoldKind.ARRAY)
"""Of an array itself: its elements start in its place."""

_LET_GO: Final = frozenset({Why.RESUMED, Why.BEGIN_REACHED, Why.AFTER_MET})


def entered(step: Step, job_id: JobId, spec: JobSpec, holds: tuple[Hold, ...], array: Array | None = None) -> Job:
    """A job as it is when it was just submitted."""
    story = (StateChange(step.now_s, JobState.QUEUED, SUBMITTED),)
    if array is not None:
        holds = (*holds, ARRAY_HOLD)
    constraints = _constraints(step, spec)
    return Job(
        job_id, spec, step.now_s, reason=SUBMITTED, story=story, constraints=constraints, holds=holds, array=array
    )


def element_of(step: Step, owner: Job, job_id: JobId) -> Job:
    """An element of an array as a job: it was submitted with its array, and is let go when that was."""
    array = owner.array
    assert array is not None  # noqa: S101 - as the caller knows
    story: tuple[StateChange, ...] = (StateChange(owner.submit_s, JobState.QUEUED, SUBMITTED),)
    reason, since_s = SUBMITTED, None
    if owner.reason is not None and owner.since_s is not None and owner.reason.why in _LET_GO:
        reason, since_s = owner.reason, owner.since_s
        story = (*story, StateChange(since_s, JobState.QUEUED, reason))
    return Job(
        job_id,
        owner.spec,
        owner.submit_s,
        since_s=since_s,
        reason=reason,
        story=story,
        constraints=_constraints(step, owner.spec),
        element=arrays.element_of(owner.id, array, job_id),
    )


def _constraints(step: Step, spec: JobSpec) -> Constraints:
    config = step.config
    cores = None if config.tuning is None else start_cores_of(step.state, spec)
    doubted = spec.steps_total is not None and step.state.usage.truths_owed(spec.user) > 0
    domain = sharing_domain(spec, config.share_between)
    return Constraints(cores=cores, sharing_domain=domain, steps_total_doubted=doubted)
