"""What is changed of a job that is in the queue or runs: its time limit, how many elements run at once.

A time limit that is changed, by its owner or by an operator, stands among the job's constraints beside the one that was
declared: what was submitted can be read, submitted again and simulated as it was, and the story says who changed it.
"""

from __future__ import annotations

from colane.core.events import LimitsChanged
from colane.core.lifecycle import noted
from colane.core.reducers import arrays
from colane.core.reducers.step import Step
from colane.model.job import Job
from colane.model.phases import HoldKind
from colane.model.reason import Reason, Why


def limits_changed(step: Step, event: LimitsChanged) -> None:
    """Take new limits; of an array, for its elements that are jobs as for those that will be."""
    job = step.state.jobs.get(event.job)
    if job is None and not is_held_whole(arrays.owner_of(step, event.job)):
        job = arrays.touch(step, event.job)
    if job is None:
        step.stale.append((event, "no such live job"))
        return
    for each in (job, *arrays.jobs_of(step, job)):
        _change(step, each, event)


def is_held_whole(owner: Job | None) -> bool:
    """Whether an array is held as a whole: an element that became a job of its own would not be held with it."""
    return owner is not None and any(hold.kind is not HoldKind.ARRAY for hold in owner.holds)


def _change(step: Step, job: Job, event: LimitsChanged) -> None:
    changed, said = job, list[str]()
    if event.time_limit is not None and job.effective.time_limit_s != event.time_limit.value:
        changed = changed.under(step.kept_off(job, job.constraints._replace(time_limit=event.time_limit)))
        said.append("no time limit" if event.time_limit.value is None else f"time limit {event.time_limit.value:g} s")
    if event.at_once is not None and job.array is not None and job.array.throttle != event.at_once.value:
        most = None if event.at_once.value is None else int(event.at_once.value)
        changed = arrays.with_array(changed, job.array._replace(throttle=most))
        said.append(f"{'any number' if most is None else f'at most {most}'} of its elements at once")
    if not said:
        return
    changed = noted(changed, step.now_s, Reason(Why.LIMITS_CHANGED, {"what": ", ".join(said), "by": event.by}))
    step.put(changed)
    if changed.placement is not None:
        step.set_limit_timer(changed)
