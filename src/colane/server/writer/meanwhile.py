"""What has become of the jobs that a batch waits for while it entered the queue, slice by slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from colane.model.job import Job, JobId
from colane.model.phases import Dependency, Hold, HoldKind
from colane.server.board.arrays import unmade
from colane.server.board.slices import BatchSlice
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, Document, UnreadableError, job_key
from colane.server.store.unreadable import read_one


class MetMeanwhile(NamedTuple):
    """Jobs that are waited for and are live no more."""

    ended: tuple[Job, ...]  # those that have ended
    lost: frozenset[int]  # ids of those whose records are gone


def met_meanwhile(turn: Turn, part: BatchSlice) -> MetMeanwhile:
    """Look for the jobs that jobs of a slice wait for, and that the core does not know any more.

    Raises StoreError: the store cannot be read.
    """
    ended, lost = list[Job](), set[int]()
    for job_id, wanted in {each.job: each for each in _waited_for(part)}.items():
        if _is_coming(turn, part, job_id):
            continue
        owner = None if wanted.element is None else turn.read_model.jobs.get(wanted.element.array)
        found = (None if owner is None else unmade(owner, JobId(wanted.job))) or _ended(turn, job_id)
        if found is None:
            lost.add(job_id)
        elif found.has_ended:
            ended.append(found)
    return MetMeanwhile(tuple(ended), frozenset(lost))


def _waited_for(part: BatchSlice) -> Iterator[Dependency]:
    for job in part.jobs:
        for holds in (job.holds, *[own for _, own in job.elements]):
            yield from [hold.after for hold in holds if hold.after is not None]


def _is_coming(turn: Turn, part: BatchSlice, job_id: int) -> bool:
    """Whether the core knows a job, or will."""
    if JobId(job_id) in turn.read_model.jobs or part.first <= job_id < part.end:
        return True
    return any(other.first <= job_id < other.end for other in turn.read_model.entering.values())


def _ended(turn: Turn, job_id: int) -> Job | None:
    try:
        return read_one(turn.reads, FINISHED_JOBS, job_key(JobId(job_id)), _job)
    except UnreadableError:
        return None


def _job(document: Document) -> Job:
    return documents.decode_job(document["job"])


def without_lost(job: Admitted, lost: frozenset[int]) -> Admitted:
    """Return a job that does not wait for what can be told of no more: its owner decides."""
    if not lost:
        return job
    elements = tuple([(ordinal, _without(holds, lost)) for ordinal, holds in job.elements])
    return replace(job, holds=_without(job.holds, lost), elements=elements)


def _without(holds: tuple[Hold, ...], lost: frozenset[int]) -> tuple[Hold, ...]:
    gone = [hold.after for hold in holds if hold.after is not None and hold.after.job in lost]
    if not gone:
        return holds
    kept = tuple([hold for hold in holds if hold.after is None or hold.after.job not in lost])
    if any(hold.kind is HoldKind.USER for hold in kept):
        return kept
    said = ", ".join(map(str, gone))
    return (*kept, Hold(HoldKind.USER, f"Colane: its record was removed, so it is not known whether {said} came true"))
