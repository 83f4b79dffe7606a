"""Arrays as clients see them: how their elements stand, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from colane.api.forms import UNREADABLE
from colane.api.jobs import ArrayObject
from colane.api.nodes import ElementObject, LaunchArrayObject
from colane.core.eligibility import hold_reason, without
from colane.model.arrays import RANGES_MAX, both, element_of, has, known, number_of, parse_indexes
from colane.model.job import Job, JobId, JobState
from colane.model.job_spec import Constraints
from colane.model.phases import Array, HoldKind, Ordinals, StateChange
from colane.model.reason import Reason, Why
from colane.server.board.read_model import ReadModel
from colane.server.ground.problems import RefusedError
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, Readable, job_key


def array_view(job: Job, live: Sequence[Job] = ()) -> ArrayObject | None:
    """Return how the elements of an array stand, `live` those that are live jobs; None of any other job."""
    array = job.array
    if array is None:
        return None
    running = sum(one.placement is not None for one in live)
    return {
        "indexes": array.indexes,
        "throttle": array.throttle,
        "count": array.size,
        "running": running,
        "waiting": len(live) - running + number_of(array.pending),
        "succeeded": array.succeeded,
        "failed": array.failed,
        "cancelled": array.cancelled,
        "pending": _indexes(array, array.pending),
        "cut": _indexes(array, array.cut),
    }


def _indexes(array: Array, ranges: Sequence[Ordinals]) -> list[list[int]]:
    """First and last index of each range."""
    there = known(array)
    return [[there.index_of(first), there.index_of(last)] for first, last in ranges]


def launched_element(job: Job, read_model: ReadModel) -> LaunchArrayObject:
    """Return what an element is told of its array when it is launched; nothing of any other job."""
    owner = None if job.element is None else read_model.jobs.get(job.element.array)
    if owner is None or owner.array is None or job.element is None:
        return {}
    indexes, index = known(owner.array), job.element.index
    array: ElementObject = {
        "id": owner.id,
        "index": index,
        "count": indexes.size,
        "min": indexes.first,
        "max": indexes.last,
    }
    return {"array": array}


def element_ordinals(read_model: ReadModel, job_id: JobId, text: str | None) -> tuple[Ordinals, ...]:
    """Return the elements of a live array that a text names, as `3,7-9`; none, which stands for all, without a text.

    Raises RefusedError: 422, the job is no array, or has no such element.
    """
    if text is None:
        return ()
    job = read_model.jobs.get(job_id)
    if job is None or job.array is None:
        raise RefusedError.because(422, f"job {job_id} is no array: name it without elements", "elements")
    try:
        wanted = parse_indexes(text)
    except ValueError as error:
        raise RefusedError.because(422, str(error), "elements") from error
    found, missing = known(job.array).ordinals_of(wanted)
    if missing is not None:
        text = f"array {job_id} has no element {missing}: it has {job.array.indexes}"
        raise RefusedError.because(422, text, "elements")
    if len(found) > RANGES_MAX:
        raise RefusedError.because(422, f"names {len(found)} separate ranges, and may name {RANGES_MAX}", "elements")
    return found


def unmade(owner: Job, job_id: JobId) -> Job | None:
    """Return an element that is no job of its own as the job that it would be; None of one that is, or has been."""
    array, ordinal = owner.array, job_id - owner.id - 1
    if array is None or not has(owner.id, array, job_id):
        return None
    held_to = Constraints(time_limit=owner.constraints.time_limit, after=owner.constraints.after)
    element, here = element_of(owner.id, array, job_id), ((ordinal, ordinal),)
    if both(array.cut, here):
        told = [
            line.reason.facts.get("by") for line in owner.story if line.reason.why in {Why.CANCELLED, Why.ARRAY_CUT}
        ]
        reason = Reason(Why.CANCELLED, {"by": (str(told[-1]) if told else "their owner")})
        story = (StateChange(owner.submit_s, JobState.CANCELLED, reason),)
        return Job(
            job_id, owner.spec, owner.submit_s, JobState.CANCELLED,
            reason=reason, story=story, constraints=held_to, element=element,
        )  # fmt: skip
    if not both(array.pending, here):
        return None
    holds = without(owner, HoldKind.ARRAY)
    before = number_of(both(array.pending, ((0, ordinal),))) - 1
    reason = Reason(Why.ARRAY_NEXT, {"before": before, "array": owner.id})
    job = Job(job_id, owner.spec, owner.submit_s, reason=reason, holds=holds, constraints=held_to, element=element)
    if holds:
        job.reason = hold_reason(job)
    return job


def ended_array_with(store: Readable, job_id: JobId) -> Job | None:
    """Return the array that has ended and one of whose elements has an id; None where none is known.

    The records of an array's elements stand behind its own, and nothing stands between them. Raises StoreError: the
    store cannot be read.
    """
    for _, document in store.page_back(FINISHED_JOBS, job_key(job_id + 1), 1):
        try:
            job = documents.decode_job(document["job"])
            if job.element is not None and job.id != job_id:
                found = store.get(FINISHED_JOBS, job_key(job.element.array))
                job = job if found is None else documents.decode_job(found["job"])
        except UNREADABLE:
            return None
        return job if job.array is not None and has(job.id, job.array, job_id) else None
    return None
