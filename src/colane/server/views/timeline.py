"""Where jobs were, from when to when; and what users had of devices on each day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from colane.api.seeing import (
    CoRunnersAnswer,
    DeviceMarkObject,
    MoveObject,
    MovesAnswer,
    TimelineAnswer,
    TimelineJobObject,
    UsageDayObject,
)
from colane.model.job import Job, JobId
from colane.server.board.read_model import ReadModel
from colane.server.ground.sight import Sight
from colane.server.samples.marks import DeviceMark
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, AttemptRecord, PlaceSpan, span_objects
from colane.server.store.store import FINISHED_JOBS, AuditLine, Document, Store
from colane.server.store.unreadable import readable
from colane.server.writer.feed import lines_for

PAGE_ROWS: Final = 500
DAY_S: Final = 86_400.0


def spans_of(known: Iterable[AttemptRecord]) -> list[PlaceSpan]:
    """Where a job was, oldest first."""
    return [span for attempt in known for span in attempt.spans]


def timeline(
    store: Store,
    read_model: ReadModel,
    sight: Sight,
    since_s: float,
    until_s: float,
    limit: int,
    marks: list[DeviceMarkObject],
    node: str = "",
) -> TimelineAnswer:
    """Return the jobs that held devices in a time, the youngest first, at most `limit`; `marks` are of that time.

    With `node` only devices of that one.

    Raises StoreError: the store cannot be read.
    """
    found, more = list[TimelineJobObject](), 0
    for job, spans in _all(store, read_model, since_s):
        here = [span for span in spans if span.since_s < until_s and (span.until_s is None or span.until_s > since_s)]
        if node:
            at = ((span, tuple(gpu for gpu in span.gpus if gpu.rpartition("/")[0] == node)) for span in here)
            here = [span._replace(gpus=gpus) for span, gpus in at if gpus]
        if here and sight.has(job.spec.user):
            if len(found) == limit:
                more += 1
                continue
            state, spec = job.state.value, job.spec
            told = span_objects(here)
            found.append({"id": job.id, "name": spec.name, "user": spec.user, "state": state, "spans": told})
    return {
        "since_s": since_s, "until_s": until_s, "jobs": found, "marks": marks, "left_out": more > 0,
        "left_out_count": more,
    }  # fmt: skip


def co_runners(
    store: Store, read_model: ReadModel, sight: Sight, job_id: JobId, own: list[PlaceSpan], now_s: float, limit: int
) -> CoRunnersAnswer:
    """Return which jobs were on the devices of a job while it was there, first come first, at most `limit`.

    Args:
        store: Tells of jobs that have ended.
        read_model: Tells of the others.
        sight: What the caller may be told.
        job_id: The job.
        own: Where it was.
        now_s: Until when it is there, where it is.
        limit: More are left out, those that came last.

    Raises:
        StoreError: The store cannot be read.
    """
    found, hidden = list[TimelineJobObject](), 0
    since_s = min((span.since_s for span in own), default=None)
    until_s = max((now_s if span.until_s is None else span.until_s for span in own), default=None)
    for job, spans in _all(store, read_model, since_s) if since_s is not None else ():
        beside = [] if job.id == job_id else [both for span in spans for both in _shared(own, span)]
        if beside and sight.has(job.spec.user):
            told = span_objects(sorted(beside, key=lambda span: span.since_s))
            state, spec = job.state.value, job.spec
            found.append({"id": job.id, "name": spec.name, "user": spec.user, "state": state, "spans": told})
        hidden += bool(beside) and not sight.has(job.spec.user)
    found.sort(key=lambda one: (one["spans"][0]["since_s"], one["id"]))
    more = max(0, len(found) - limit)
    return {
        "id": job_id, "since_s": since_s, "until_s": until_s, "jobs": found[:limit], "hidden": hidden,
        "left_out": more > 0, "left_out_count": more,
    }  # fmt: skip


def _shared(own: Iterable[PlaceSpan], other: PlaceSpan) -> Iterator[PlaceSpan]:
    """Yield the devices that two jobs held at once, and from when to when; None until now."""
    for mine in own:
        gpus = tuple(gpu for gpu in mine.gpus if gpu in other.gpus)
        ends = [until_s for until_s in (mine.until_s, other.until_s) if until_s is not None]
        since_s, until_s = max(mine.since_s, other.since_s), min(ends, default=None)
        if gpus and (until_s is None or until_s > since_s):
            yield PlaceSpan(gpus, since_s, until_s)


def marks_view(marks: Iterable[DeviceMark], read_model: ReadModel, sight: Sight) -> list[DeviceMarkObject]:
    """Return marks as a caller may see them: for which job a device is kept only where the caller is told of it."""
    found: list[DeviceMarkObject] = []
    for mark in marks:
        job = None if mark.job is None else read_model.jobs.get(JobId(mark.job))
        is_told = sight.is_whole or (job is not None and sight.has(job.spec.user))
        number = mark.job if is_told else None
        since_s, until_s = mark.since_s, mark.until_s
        found.append({"gpu": mark.gpu, "kind": mark.kind, "job": number, "since_s": since_s, "until_s": until_s})
    return found


def usage_days(store: Store, read_model: ReadModel, sight: Sight, since_s: float, now_s: float) -> list[UsageDayObject]:
    """Return what each user had of devices on each day since then, UTC, and how many jobs ended; days in order.

    What a job had to make again, of all its attempts, is told of the day on which it was last interrupted.

    Jobs that an older Colane recorded tell of no devices. Raises StoreError: the store cannot be read.
    """
    days: dict[tuple[float, str], UsageDayObject] = {}

    def of(at_s: float, user: str) -> UsageDayObject:
        start_s = at_s - at_s % DAY_S
        none: UsageDayObject = {"start_s": start_s, "user": user, "gpu_s": 0.0, "lost_gpu_s": 0.0, "ended": 0}
        return days.setdefault((start_s, user), none)

    for job, spans in _all(store, read_model, since_s):
        if not sight.has(job.spec.user):
            continue
        if job.end_s is not None and job.array is None:
            of(job.end_s, job.spec.user)["ended"] += 1
        if (lost := _lost(job, spans)) is not None and lost[0] >= since_s:
            of(lost[0], job.spec.user)["lost_gpu_s"] += lost[1]
        for span in spans:
            end_s = now_s if span.until_s is None else span.until_s
            for start_s, part_s in _by_day(max(span.since_s, since_s), end_s):
                of(start_s, job.spec.user)["gpu_s"] += part_s * len(span.gpus)
    return [days[key] for key in sorted(days)]


def _lost(job: Job, spans: list[PlaceSpan]) -> tuple[float, float] | None:
    """When a job last left devices without having ended, and the device seconds that it had to make again in all."""
    over = [span for span in spans if span.until_s is not None and span.until_s != job.end_s] or spans
    if not job.totals.lost_s or not over:
        return None
    return over[-1].until_s or over[-1].since_s, job.totals.lost_s * len(over[-1].gpus)


def _by_day(since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
    """Yield the beginning of each part of a time that lies within a day, and its length."""
    while since_s < until_s:
        end_s = min(until_s, since_s - since_s % DAY_S + DAY_S)
        yield since_s, end_s - since_s
        since_s = end_s


def _all(store: Store, read_model: ReadModel, since_s: float) -> Iterator[tuple[Job, list[PlaceSpan]]]:
    """Yield live jobs and those that ended since, the youngest first, each once."""
    live = sorted(read_model.jobs.values(), key=lambda job: -job.id)
    attempts, ids = dict(read_model.attempts), {job.id for job in live}
    for job in live:
        yield job, spans_of(attempts.get(job.id, ()))
    before: str | None = None
    while page := store.page_back(FINISHED_JOBS, before, PAGE_ROWS):
        before = page[-1][0]
        for job, spans in readable(store, FINISHED_JOBS, page, _ended):
            if (job.end_s or 0.0) >= since_s and JobId(job.id) not in ids:
                yield job, spans


def _ended(document: Document) -> tuple[Job, list[PlaceSpan]]:
    return documents.decode_job(document["job"]), spans_of(ATTEMPTS.read(document.get("attempts", ())))


# -- What became of jobs around a moment, of the story of all events: found by halving, as times in it ascend.


READ_MAX: Final = 2_000  # lines looked through on each side of the moment: of others than these nothing is told

MOVES_ROWS: Final = 200
KIND: Final = "job"


def moves_around(store: Store, read_model: ReadModel, sight: Sight, at_s: float, limit: int) -> MovesAnswer:
    """Return the last moves of jobs up to a moment, and the first after it, at most `limit` of each.

    Raises StoreError: the store cannot be read.
    """
    place = _last_until(store, at_s)
    before: list[AuditLine] = []
    first = place
    while first > 0 and place - first < READ_MAX and len(before) < limit:
        start = max(0, first - MOVES_ROWS)
        lines = [line for line in store.audit(start, first - start) if line.number <= first]
        before = [*_seen(sight, lines, read_model, store), *before]
        first = start
    after: list[AuditLine] = []
    last = place
    while last - place < READ_MAX and len(after) < limit and (lines := store.audit(last, MOVES_ROWS)):
        last = lines[-1].number
        after += _seen(sight, lines, read_model, store)
    shown = before[-limit:] if limit else []
    return {"at_s": at_s, "before": [_move(line) for line in shown], "after": [_move(line) for line in after[:limit]]}


def _last_until(store: Store, at_s: float) -> int:
    """Number of the last line that is not after a moment; 0 where none is."""
    low, high = 0, store.last_audit_number()
    while low < high:
        middle = (low + high) // 2
        lines = store.audit(middle, 1)
        if not lines or lines[0].at_s > at_s:
            high = middle
        else:
            low = lines[0].number
    return low


def _seen(sight: Sight, lines: Iterable[AuditLine], read_model: ReadModel, store: Store) -> list[AuditLine]:
    return lines_for(sight, [line for line in lines if line.kind == KIND and "state" in line.body], read_model, store)


def _move(line: AuditLine) -> MoveObject:
    body = line.body
    return {
        "number": line.number,
        "at_s": line.at_s,
        "job": int(body["job"]),
        "name": str(body.get("name", "")),
        "state": str(body["state"]),
        "sentence": str(body.get("sentence", "")),
    }
