"""Jobs that enter the queue: as they were submitted, or as elements of an array that was."""

from __future__ import annotations

from typing import Final

from colane.core.cluster.useful_cores import start_cores_of
from colane.core.reducers.step import Step
from colane.model import arrays
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.job_spec import UNCONSTRAINED, Constraints, PromisedGpus, sharing_domain
from colane.model.phases import Array, Hold, HoldKind, StateChange, kinds
from colane.model.reason import Reason, Why
from colane.perf.shared_family import believed_family

SUBMITTED: Final = Reason(Why.SUBMITTED)
ARRAY_HOLD: Final = Hold(HoldKind.ARRAY)  # of an array itself: its elements start in its place


def entered(
    step: Step,
    job_id: JobId,
    spec: JobSpec,
    holds: tuple[Hold, ...],
    array: Array | None = None,
    after: str = "",
    promised: PromisedGpus | None = None,
) -> Job:
    """A job as it is when it was just submitted; `after` names the jobs that its spec means."""
    if array is not None:
        holds = (*holds, ARRAY_HOLD)
    story = (StateChange(step.now_s, JobState.QUEUED, SUBMITTED, kinds(holds)),)
    constraints = _constraints(step, spec)
    if after != spec.after:
        constraints = constraints._replace(after=after)
    if promised is not None:
        constraints = constraints._replace(promised=promised)
    job = Job(
        job_id, spec, step.now_s, reason=SUBMITTED, story=story, constraints=constraints, holds=holds, array=array
    )
    return job.under(step.kept_off(job, constraints)) if step.state.reserved else job


def element_of(step: Step, owner: Job, job_id: JobId) -> Job:
    """An element of an array as a job: it was submitted, let go and is believed as that was."""
    array, held_to = owner.array, owner.constraints
    assert array is not None  # noqa: S101 - as the caller knows
    constraints = _constraints(step, owner.spec)
    job = Job(
        job_id,
        owner.spec,
        owner.submit_s,
        since_s=owner.since_s,
        reason=owner.reason,
        story=owner.story,
        story_left_out=owner.story_left_out,
        constraints=constraints._replace(family=held_to.family, time_limit=held_to.time_limit, after=held_to.after),
        element=arrays.element_of(owner.id, array, job_id),
    )
    return job.under(step.kept_off(job, job.constraints)) if step.state.reserved else job


def _constraints(step: Step, spec: JobSpec) -> Constraints:
    config = step.config
    is_need = config.tuning is not None and config.tuning.is_need
    cores = None if config.tuning is None else start_cores_of(step.state, spec, is_need=is_need)
    doubted = spec.steps_total is not None and step.state.usage.truths_owed(spec.user) > 0
    domain = sharing_domain(spec, config.share_between)
    family = believed_family(spec.family, spec.user, step.state.knowledge) if config.families_agree else ""
    if cores is None and not doubted and not domain and family in {"", spec.family}:
        return UNCONSTRAINED
    return Constraints(
        cores=cores,
        needs_cores=cores is not None and is_need,
        sharing_domain=domain,
        steps_total_doubted=doubted,
        family="" if family == spec.family else family,
    )
