"""Records that cannot be read: what that means for each collection, and reading around them.

A record is unreadable where it is not as it was written (its checksum tells), is no JSON object, or means nothing to
its reader. The one rule of what happens then stands here: the service starts without a record where nothing that cannot
be taken back follows from its absence, and is refused where something would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from colane.api.forms import UNREADABLE
from colane.server.ground.problems import RefusedError
from colane.server.store.store import (
    AUDIT,
    FINISHED_JOBS,
    IDEMPOTENCY,
    LAUNCH_SPECS,
    LENGTHS,
    MEASUREMENTS,
    PROFILES,
    RUN_TIMES,
    SUBMITTED_JOBS,
    TOKENS,
    USED,
    Document,
    Readable,
    Store,
    StoreError,
    Unreadable,
    UnreadableError,
    job_key,
)

log = logging.getLogger(__name__)
Value = TypeVar("Value")

WITHOUT: Final[Mapping[str, str]] = {
    SUBMITTED_JOBS: "the job waits on: it holds nothing, its id is not given again, and its record stays for repair",
    FINISHED_JOBS: "history: the job is left out of listings and usage",
    LAUNCH_SPECS: "the job goes on where it runs; where it would be started, it fails and says why",
    PROFILES: "belief: it is learnt again",
    MEASUREMENTS: "belief: it is learnt again",
    LENGTHS: "nothing reads it any more",
    RUN_TIMES: "belief: it is learnt again",
    USED: "a user's past use counts as none in the order of the queue",
    TOKENS: "its holder is refused, and is given another",
    IDEMPOTENCY: "a request that is sent again under its key is refused: whether it was done is not known",
    AUDIT: "history: a line in its place says so",
}
"""What a service does without a record of a collection.

Of the others it is not started: without the record of an `assigned_jobs` job its agent would end it and its GPUs would
be given away; without one of `nodes` a drain that was acknowledged would be forgotten; without `meta` ids would be
given twice; without `epochs` agents of another history would be taken for ours. A record whose collection is none that
is known may have been of any. The newest line of the audit log tells how many events there were, by which agents know
the store.
"""

NAMED_MAX: Final = 5  # so many records are named in one sentence


def judge(store: Store) -> None:
    """Refuse to go on where a record is missing that the service may not do without.

    Raises StoreError: names the records, and what to do.
    """
    newest = AUDIT, str(store.last_audit_number())
    vital = [one for one in store.unreadable() if one.collection not in WITHOUT or (one.collection, one.key) == newest]
    if vital:
        raise StoreError(
            f"{named(vital)}. Without that jobs would be ended or ids given twice, so nothing is started: "
            "put a copy of the store back (colane restore), or go on without (colane check --set-aside)"
        )


def named(records: Iterable[Unreadable]) -> str:
    """Name records in a sentence."""
    known = list(records)
    more = len(known) - NAMED_MAX
    return "; ".join(map(str, known[:NAMED_MAX])) + (f"; and {more} more" if more > 0 else "")


def readable(
    store: Readable, collection: str, rows: Iterable[tuple[str, Document]], read: Callable[[Document], Value]
) -> list[Value]:
    """Return what can be read of a collection; a record that cannot is noted, named in the log and stays as it is.

    One record that was tampered with, or that a newer Colane has written, must not keep the others from their work.
    """
    return [value for _, value in keyed(store, collection, rows, read)]


def get_readable(store: Readable, collection: str, key: str) -> Document | None:
    """Return one document; None where it is not there, and where it cannot be read."""
    try:
        return store.get(collection, key)
    except UnreadableError:
        return None


def read_one(store: Readable, collection: str, key: str, read: Callable[[Document], Value]) -> Value | None:
    """Return one record as it is read, None where it is not there. Raises StoreError: it cannot be read."""
    body = store.get(collection, key)
    if body is None:
        return None
    for _, value in keyed(store, collection, [(key, body)], read):
        return value
    raise UnreadableError(f"{collection} {key} cannot be read: it is not what it should be")


def keyed(
    store: Readable, collection: str, rows: Iterable[tuple[str, Document]], read: Callable[[Document], Value]
) -> Iterator[tuple[str, Value]]:
    """The same, each with its key."""
    for key, body in rows:
        try:
            value = read(body)
        except UNREADABLE as error:
            record = Unreadable(collection, key, f"{type(error).__name__}: {error}")
            if store.note_unreadable(record):
                log.error("%s; it is left out", record)  # noqa: TRY400 - the operator needs the name, not the place
        else:
            yield key, value


def public_names(records: Iterable[Unreadable]) -> list[str]:
    """Name records where anyone may read it: keys that are no numbers may tell of users and of what they run."""
    names: dict[str, None] = {}
    for record in records:
        by_number = len(record.key) == len(job_key(0)) and record.key.isdigit()
        number = str(int(record.key)) if by_number else record.key if record.collection == AUDIT else ""
        names[f"{record.collection} {number}".strip()] = None
    return list(names)


def refusal_of(error: StoreError) -> RefusedError:
    """Return what a request is told where the store cannot be used: at present, or of one record for good."""
    return RefusedError.because(500 if isinstance(error, UnreadableError) else 503, str(error))
