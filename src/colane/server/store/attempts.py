"""What is kept of the attempts of a job: where each ran, and why it ended. Logs are found by it, one for each attempt.

It is read from the moves that a turn brings: an attempt begins when the job is given a place and ends when it is queued
again or has ended for good. The story tells no places, and of a long life not all moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from colane.api.forms import Form, row, several
from colane.api.jobs import AttemptObject, PlaceSpanObject
from colane.model.job import ENDED, Job, JobState
from colane.model.reason import Reason, Why
from colane.server.store.documents import sentence

ATTEMPTS_MAX: Final = 64  # the last ones are kept: an elastic job may be moved for months


SPANS_MAX: Final = 256  # of one attempt, the last ones: a parked job may come back elsewhere on its node many times


WENT_ON: Final = Why.WENT_ON  # with this an attempt that had ended goes on, as it had not


class PlaceSpan(NamedTuple):
    """Devices that an attempt held, as `node/number`, and from when to when; None while it holds them."""

    gpus: tuple[str, ...]
    since_s: float
    until_s: float | None = None


class AttemptRecord(NamedTuple):
    """One attempt."""

    number: int  # from 1
    node: str  # where its log lies: of several nodes, that of rank 0. Empty where it was over before it was told anyone
    assigned_s: float  # when the job was given a place
    start_s: float | None = None  # when its process started; None while, and where, it did not
    end_s: float | None = None  # when it ended; None while it goes on
    why: str = ""  # why it ended, in a sentence; empty while it goes on
    # which devices it held when. Empty of one that held none, or that an older Colane recorded
    spans: tuple[PlaceSpan, ...] = ()


SPANS: Final[Form[tuple[PlaceSpan, ...]]] = several(row(PlaceSpan, gpus=several()))
ATTEMPTS: Final[Form[tuple[AttemptRecord, ...]]] = several(row(AttemptRecord, spans=SPANS))


def with_moves(known: tuple[AttemptRecord, ...], old: Job | None, job: Job) -> tuple[AttemptRecord, ...]:
    """Return what is known of a job's attempts after it has come from `old`, None for a new one, to what it is now."""
    moves = job.changes_since(old.changes if old else 0)
    number = job.attempt - sum(move.state is JobState.ASSIGNED and move.reason.why is not WENT_ON for move in moves)
    found = list(known)
    for move in moves:
        if found and move.reason.why is WENT_ON:
            found[-1] = found[-1]._replace(end_s=None, why="")
        elif move.state is JobState.ASSIGNED:
            number += 1
            is_present = number == job.attempt and job.placement is not None
            node = job.placement.node if is_present and job.placement is not None else ""
            found.append(AttemptRecord(number, node, move.at_s))
        elif found and found[-1].end_s is None and (move.state is JobState.QUEUED or move.state in ENDED):
            start_s = next((one.start_s for one in (job, old) if one is not None and one.attempt == number), None)
            spans = _ended(found[-1].spans, move.at_s)
            found[-1] = found[-1]._replace(start_s=start_s, end_s=move.at_s, why=_why(move.reason), spans=spans)
    if found and found[-1].end_s is None and moves:
        found[-1] = found[-1]._replace(spans=_moved(found[-1].spans, job, moves[-1].at_s))
    return tuple(found[-ATTEMPTS_MAX:])


def _moved(spans: tuple[PlaceSpan, ...], job: Job, at_s: float) -> tuple[PlaceSpan, ...]:
    """Where an attempt has been, with where it is now."""
    here = tuple(str(gpu) for gpu in job.gpus_held)
    if spans and spans[-1].until_s is None and spans[-1].gpus == here:
        return spans
    left = _ended(spans, at_s)
    return (*left, PlaceSpan(here, at_s))[-SPANS_MAX:] if here else left


def _ended(spans: tuple[PlaceSpan, ...], at_s: float) -> tuple[PlaceSpan, ...]:
    if not spans or spans[-1].until_s is not None:
        return spans
    return (*spans[:-1], spans[-1]._replace(until_s=at_s))


def _why(reason: Reason) -> str:
    """What ended an attempt; of a reason that tells of the job, too, what it says of the attempt."""
    of_attempt = reason.why in {Why.RETRY, Why.RETRIES_USED_UP} and reason.facts.get("cause")
    return str(of_attempt) if of_attempt else sentence(reason)


def present(job: Job, record: AttemptRecord) -> AttemptRecord:
    """Return the record with when its process started, where it is of the job's present attempt."""
    return record if record.number != job.attempt else record._replace(start_s=job.start_s)


def shown_attempts(job: Job, known: tuple[AttemptRecord, ...]) -> list[AttemptObject]:
    """Return the attempts of a live job as the API shows them."""
    return attempt_objects(present(job, record) for record in known)


def span_objects(spans: Iterable[PlaceSpan]) -> list[PlaceSpanObject]:
    """Return where an attempt was as the API shows it."""
    return [{"gpus": list(span.gpus), "since_s": span.since_s, "until_s": span.until_s} for span in spans]


def attempt_objects(known: Iterable[AttemptRecord]) -> list[AttemptObject]:
    """Return attempts as the API shows them."""
    return [
        {
            "number": one.number,
            "node": one.node,
            "assigned_s": one.assigned_s,
            "start_s": one.start_s,
            "end_s": one.end_s,
            "why": one.why,
            "spans": span_objects(one.spans),
        }
        for one in known
    ]
