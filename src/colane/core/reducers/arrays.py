"""Arrays: their elements become jobs just ahead of need, no more of them may start than may run at once.

An array is a job that never starts itself (`HoldKind.ARRAY`). Of its elements as many are jobs as run or have been
touched, and so many more that no policy lacks any that might start: an array of a million costs what its running ones
cost. What becomes of each is counted as it ends, in the same step; when all have ended, so has the array.

Of an array with a throttle, those that run and those that may start are never more than it: elements beyond that are no
jobs yet, or are held (`HoldKind.ARRAY`), oldest first to be let go. This holds before any policy is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from colane.core.cluster.arrays import LiveElements
from colane.core.eligibility import with_hold, without
from colane.core.lifecycle import move
from colane.core.reducers.entering import element_of
from colane.core.reducers.step import Step
from colane.model import arrays
from colane.model.arrays import element_id
from colane.model.job import Job, JobId, JobState
from colane.model.phases import Array, Hold, HoldKind, Ordinals
from colane.model.reason import Reason, Why

WAITING_MIN: Final = 32  # so many elements of an array wait as jobs, or as many as run of it where these are more

MADE_MAX: Final = 2_000
"""Elements that become jobs in one step: where nothing is short, more do in the next, so that no step takes long."""


def with_array(job: Job, array: Array) -> Job:
    """The job, an array, with something else known of its elements."""
    fresh = job.copied()
    fresh.array = array
    return fresh


def owner_of(step: Step, job_id: JobId) -> Job | None:
    """The live array one of whose elements has an id and is no job yet; None where there is none."""
    for array_id in step.state.arrays.arrays:
        job = step.state.jobs.get(array_id)
        if job is not None and job.array is not None and arrays.has(array_id, job.array, job_id):
            ordinal = job_id - array_id - 1
            return job if arrays.both(job.array.pending, ((ordinal, ordinal),)) else None
    return None


def touch(step: Step, job_id: JobId) -> Job | None:
    """Make a job of an element that is none yet; None where there is no such element."""
    owner = owner_of(step, job_id)
    if owner is None or owner.array is None:
        return None
    ordinal = job_id - owner.id - 1
    step.put(with_array(owner, _taken(owner.array, ((ordinal, ordinal),))))
    step.put(element_of(step, owner, job_id))
    return step.state.jobs[job_id]


def make_held(step: Step, owner: Job, elements: Sequence[tuple[int, tuple[Hold, ...]]]) -> list[Job]:
    """Make jobs of elements that wait for something of their own, besides what their array waits for."""
    if owner.array is None or not elements:
        return []
    taken = arrays.joined([(ordinal, ordinal) for ordinal, _ in elements])
    step.put(with_array(owner, _taken(owner.array, taken)))
    whole, ids = without(owner, HoldKind.ARRAY), list[JobId]()
    for ordinal, holds in elements:
        made = element_of(step, owner, element_id(owner.id, ordinal))
        step.put(made.with_holds((*whole, *holds)))
        ids.append(made.id)
    return [step.state.jobs[job_id] for job_id in ids]


def begin(step: Step) -> None:
    """A step begins: arrays of which more is to become jobs than fitted in the one before are looked at."""
    book = step.state.arrays
    book.due.update(book.later)
    book.later.clear()


def jobs_of(step: Step, owner: Job | None) -> list[Job]:
    """The elements of an array that are live jobs, in order; none of any other job."""
    if owner is None or owner.array is None:
        return []
    return [step.state.jobs[job] for job in sorted(step.state.arrays.arrays[owner.id].jobs)]


def settle(step: Step) -> None:
    """Look at the arrays of which something has changed: let elements go, make more, end arrays that are done."""
    _note_moves(step)
    book = step.state.arrays
    while book.due:
        array_id = book.due.popitem()[0]
        job = step.state.jobs.get(array_id)
        if job is not None and job.array is not None:
            _settle(step, job, job.array, book.arrays[array_id])


def _settle(step: Step, job: Job, array: Array, live: LiveElements) -> None:
    if not array.pending and not live.jobs:
        _end(step, job, array)
        return
    room = None if array.throttle is None else array.throttle - len(live.placed) - len(live.open)
    if room is not None and room < 0:
        _hold_back(step, job, live, -room)
    elif all(hold.kind is HoldKind.ARRAY for hold in job.holds):
        room = _let_go(step, live, room)
        _make_more(step, job, live, room)
    now = step.state.jobs[job.id]
    if now.array is not None and not now.array.all_started and not now.array.pending and _have_started(step, live):
        step.put(with_array(now, now.array._replace(all_started=True)))


def _have_started(step: Step, live: LiveElements) -> bool:
    return all(step.state.jobs[job].has_started for job in live.jobs)


def _hold_back(step: Step, owner: Job, live: LiveElements, number: int) -> None:
    """Too many may start, as some were released: the youngest of them wait for the others."""
    most = 0 if owner.array is None else owner.array.throttle or 0
    full = Hold(HoldKind.ARRAY, f"no more than {most} of the elements of array {owner.id} run at once")
    for job_id in sorted(live.open, reverse=True)[:number]:
        job = step.state.jobs[job_id]
        step.put(job.with_holds(with_hold(job, full)))


def _let_go(step: Step, live: LiveElements, room: int | None) -> int | None:
    """Let those go that wait for others of their array, as far as there is room; how much is left of it."""
    chosen = sorted(live.turned)[:room]
    for job_id in chosen:
        job = step.state.jobs[job_id]
        fresh = job.with_holds(without(job, HoldKind.ARRAY))
        step.put(move(fresh, JobState.QUEUED, step.now_s, _turn_of(step, fresh)))
    return None if room is None else room - len(chosen)


def _turn_of(step: Step, job: Job) -> Reason:
    array_id = job.id if job.element is None else job.element.array
    return Reason(Why.ARRAY_TURN, {"array": array_id, "running": len(step.state.arrays.arrays[array_id].placed)})


def _make_more(step: Step, job: Job, live: LiveElements, room: int | None) -> None:
    """Make jobs of the next elements: no more than are of use, and than may run at once."""
    array = job.array
    if array is None or not array.pending:
        return
    wanted = max(WAITING_MIN, len(live.placed)) - len(live.open)
    if wanted > MADE_MAX - step.elements_made:
        wanted = MADE_MAX - step.elements_made
        step.state.arrays.later[job.id] = None
    ordinals = arrays.first_of(array.pending, wanted if room is None else min(wanted, room))
    if not ordinals:
        return
    step.elements_made += len(ordinals)
    step.put(with_array(job, _taken(array, arrays.joined([(ordinal, ordinal) for ordinal in ordinals]))))
    for ordinal in ordinals:
        made = element_of(step, job, element_id(job.id, ordinal))
        if array.throttle is not None and step.now_s > made.submit_s:
            made = move(made, JobState.QUEUED, step.now_s, _turn_of(step, made))
        step.put(made)
    step.state.changed_pools.add(job.spec.pool)  # they may stand before jobs that were looked at


def _taken(array: Array, ordinals: tuple[Ordinals, ...]) -> Array:
    """The array without these elements among those that are no jobs yet."""
    return array._replace(pending=arrays.without(array.pending, ordinals))


def _note_moves(step: Step) -> None:
    """Elements that have started or ended in this step: their arrays know of it."""
    for moved in step.elements_moved:
        owner = None if moved.element is None else step.state.jobs.get(moved.element.array)
        if owner is None or owner.array is None:
            continue
        fresh = with_array(owner, _counted(owner.array, moved.state) if moved.has_ended else owner.array)
        if fresh.first_start_s is None:
            fresh.first_start_s = moved.first_start_s
        step.put(fresh)
    step.elements_moved.clear()


def _counted(array: Array, ended: JobState) -> Array:
    """The array with one element more that has ended so."""
    if ended is JobState.SUCCEEDED:
        return array._replace(succeeded=array.succeeded + 1)
    if ended is JobState.CANCELLED:
        return array._replace(cancelled=array.cancelled + 1)
    return array._replace(failed=array.failed + 1)


def cancel(step: Step, job: Job, elements: tuple[Ordinals, ...], reason: Reason) -> tuple[Job, ...]:
    """Cancel elements of an array, all where none are named: those that are no jobs yet never come to be any.

    Returns:
        The elements that are jobs, which the caller cancels as any other job.
    """
    array = job.array
    if array is None:
        return ()
    wanted = elements or ((0, array.size - 1),)
    told = reason
    if elements:
        told = Reason(Why.ARRAY_CUT, {"number": arrays.number_of(elements), **reason.facts})
    marked = with_array(job, array._replace(is_cancelled=array.is_cancelled or not elements))
    step.put(move(marked, JobState.QUEUED, step.now_s, told))
    for ordinal in _waited_for(step, job, array, wanted):
        touch(step, element_id(job.id, ordinal))
    job = step.state.jobs[job.id]
    array = job.array
    if array is not None and (cut := arrays.both(array.pending, wanted)):
        known = arrays.joined([*array.cut, *cut])
        number = array.cancelled + arrays.number_of(cut)
        step.put(with_array(job, _taken(array, cut)._replace(cut=known, cancelled=number)))
    return tuple([element for element in jobs_of(step, job) if _is_in(element.id - job.id - 1, wanted)])


def _waited_for(step: Step, job: Job, array: Array, wanted: Iterable[Ordinals]) -> list[int]:
    """Elements that are no jobs yet and for which other jobs wait: these are told by the end of a job."""
    cut = arrays.both(array.pending, arrays.joined(wanted))
    return [other - job.id - 1 for other in sorted(step.state.dependents) if _is_in(other - job.id - 1, cut)]


def _is_in(ordinal: int, ranges: Iterable[Ordinals]) -> bool:
    return any(first <= ordinal <= last for first, last in ranges)


def _end(step: Step, job: Job, array: Array) -> None:
    """All elements have ended."""
    facts: dict[str, str | int | float] = {
        "count": array.size, "ok": array.succeeded, "failed": array.failed, "cancelled": array.cancelled,
    }  # fmt: skip
    to = JobState.CANCELLED if array.is_cancelled or array.cancelled else JobState.SUCCEEDED
    to = JobState.FAILED if array.failed and not array.is_cancelled else to
    step.put(with_array(job, array._replace(all_started=True)))
    step.leave(step.state.jobs[job.id], to, Reason(Why.ARRAY_ENDED, facts))


def reason_of(job: Job, live: LiveElements) -> Reason:
    """Why an array is where it is: how many of its elements run, wait and have ended."""
    array = job.array
    if array is None:
        return Reason(Why.SUBMITTED)
    running, waiting = len(live.placed), len(live.jobs) - len(live.placed) + arrays.number_of(array.pending)
    facts: dict[str, str | int | float] = {
        "count": array.size, "running": running, "waiting": waiting, "ended": arrays.ended(array),
    }  # fmt: skip
    if array.throttle is not None and waiting and running >= array.throttle:
        return Reason(Why.ARRAY_FULL, {**facts, "most": array.throttle})
    return Reason(Why.ARRAY, facts)
