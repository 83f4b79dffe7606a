"""A store moved into another of whatever kind, and looked through as the service would read it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from colane.api.forms import UNREADABLE
from colane.core.config import CoreConfig
from colane.model.job import Job
from colane.server.board.read_model import DECODERS, read_board
from colane.server.board.submission import launch_key
from colane.server.store.network import NetworkStore
from colane.server.store.opening import IdentifiedStore, connect
from colane.server.store.sqlite import TROUBLE, SqliteStore
from colane.server.store.store import (
    COLLECTIONS,
    COPIED_KEY,
    COPYING_KEY,
    EPOCHS,
    LAUNCH_SPECS,
    META,
    Delete,
    Document,
    Put,
    Store,
    StoreError,
    Transaction,
)
from colane.server.writer.driver import restore_state
from colane.settings.store_address import StoreAddress

ROWS_AT_ONCE: Final = 500
COPIES_MAX: Final = 100  # of so many copies of copies the ids are kept
HALF: Final = Transaction([Put(META, COPYING_KEY, {})])
"""Marks what is copied into as half a copy, on which no scheduler starts."""
CHANGED: Final = (
    "the store that is copied has changed meanwhile: copy it as it is at one moment (colane store backup), or stop its "
    "scheduler"
)
Place = StoreAddress | Path  # where a store is: over the network, or in a file


class Found(NamedTuple):
    """What a store holds, and what is wrong with it."""

    counts: Mapping[str, int]  # documents by collection; collections without any are left out
    events: int  # number of its newest event
    flaws: tuple[str, ...]  # each names what cannot be


def open_known(place: Place, password: str | None = None, *, may_make: bool = False) -> Store:
    """Open a store that is there, or, for a copy into it, make one.

    Raises StoreError: there is none, or it cannot be used.
    """
    if isinstance(place, StoreAddress):
        return connect(place, password, may_make=may_make)
    if not may_make and not place.is_file():
        raise StoreError(f"there is no store at {place}")
    return SqliteStore(place)


def look_through(store: Store) -> Found:
    """Read a store as the service does, and compare its parts with one another.

    Raises StoreError: it cannot be read at all.
    """
    counts = {name: count for name in COLLECTIONS if (count := store.count(name))}
    store.note_missing()
    flaws: dict[str, None] = {}
    for collection in COLLECTIONS:
        for key, document in store.read_all(collection):
            try:
                DECODERS.get(collection, dict)(document)
            except UNREADABLE as error:
                flaws[f"{collection} {key} cannot be read: {type(error).__name__}: {error}"] = None
    after, events = 0, store.last_audit_number()
    while lines := store.audit(after, ROWS_AT_ONCE):
        after = lines[-1].number
    flaws |= dict.fromkeys(map(str, store.unreadable()))
    if after != events:
        flaws[f"its newest event is {after}, and it counts {events}"] = None
    if store.get(META, COPYING_KEY) is not None:
        flaws["a copy into it was broken off: empty it, and copy again"] = None
    if not flaws:
        flaws |= dict.fromkeys(_contradictions(store))
    return Found(counts, events, tuple(flaws))


def _contradictions(store: Store) -> Iterator[str]:
    """What records that can each be read say against one another."""
    board = read_board(store)
    jobs = {launch_key(job) for job in board.jobs.values()}
    for key, _ in store.read_all(LAUNCH_SPECS):
        if key not in jobs:
            yield f"there is a command of job {int(key)}, and no such job"
    for job in board.jobs.values():
        if job.id >= board.counters.next_job_id:
            yield f"job {job.id} has an id that would be given again: the next one is {board.counters.next_job_id}"
        yield from _of_placement(job, board.nodes.keys())
        if store.get(LAUNCH_SPECS, launch_key(job)) is None:
            yield f"job {job.id} has not ended, and there is no command of it"
    try:
        restore_state(store, board, CoreConfig())
    except (ValueError, KeyError, AssertionError) as error:
        yield f"its parts do not go together: {type(error).__name__}: {error}"


def _of_placement(job: Job, nodes: Container[str]) -> Iterator[str]:
    for node in () if job.placement is None else job.placement.nodes:
        if node not in nodes:
            yield f"job {job.id} is placed on node {node}, which is not known"


def copy(source: Store, target: Store) -> Found:
    """Copy all of a store into an empty one; what a scheduler writes meanwhile is noticed, and the copy given up.

    Agents take the copy for the cluster that they know: it is meant to take the source's place. Raises StoreError: the
    source holds what cannot be read, or changed meanwhile; the target is not empty, or fails.
    """
    if not _is_empty(target):
        raise StoreError("the store that is copied to is not empty: name another, or another name there (?name=NAME)")
    target.commit(HALF)
    before = source.version(), source.last_audit_number()
    found = look_through(source)
    if before != (source.version(), source.last_audit_number()):  # what was read is of several moments
        raise StoreError(f"{CHANGED} and try again")
    if found.flaws:
        raise StoreError(f"the store that is copied cannot be read as a whole: {'; '.join(found.flaws[:3])}")
    _take_lines(source, target, before[1])
    for collection in (name for name in COLLECTIONS if name != EPOCHS):
        _fill(target, collection, source.read_all(collection))
    if before != (source.version(), source.last_audit_number()):
        raise StoreError(f"{CHANGED}, empty the copy and try again")
    _end(target, source.read_all(EPOCHS), source)
    return found


def backup(source: IdentifiedStore, file: Path) -> Mapping[str, int]:
    """Copy a store over the network, as it is at one moment, into a new file; a scheduler that runs on it goes on.

    Args:
        source: The store.
        file: For its owner only; `copy` brings it back.

    Returns:
        How many documents each collection has.

    Raises:
        StoreError: The store cannot be read as a whole, or the file not be written.
        FileExistsError: There is such a file.
    """
    os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    mark = file.with_name(f"{file.name}-made")
    try:
        target = SqliteStore(file)
        try:
            found = source.snapshot()
            target.commit(HALF)
            _take_lines(source, target, found.events)
            for collection, rows in found.documents.items():
                _fill(target, collection, iter(rows) if collection != EPOCHS else iter(()))
            _end(target, found.documents.get(EPOCHS, ()), source)
            if lost := source.unreadable():
                raise StoreError(f"the store cannot be read as a whole: {'; '.join(map(str, lost[:3]))}")
        finally:
            target.close()
        with closing(sqlite3.connect(file)) as made:
            made.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it to be forgotten
    except (StoreError, *TROUBLE) as error:
        file.unlink(missing_ok=True)
        raise StoreError(f"no copy was made: {error}") from error
    finally:
        mark.unlink(missing_ok=True)
    return {name: len(rows) for name, rows in found.documents.items() if rows}


def _is_empty(target: Store) -> bool:
    """Whether nothing is there, unless it be the mark of a copy that was given up before anything was taken over."""
    others = any(target.count(name) for name in COLLECTIONS if name != META) or target.last_audit_number()
    return not others and target.count(META) == (target.get(META, COPYING_KEY) is not None)


def _take_lines(source: Store, target: Store, events: int) -> None:
    """Take the events up to a number over."""
    after = 0
    while lines := [line for line in source.audit(after, ROWS_AT_ONCE) if line.number <= events]:
        target.take_lines(lines)
        after = lines[-1].number


def _fill(target: Store, collection: str, rows: Iterator[tuple[str, Document]]) -> None:
    for puts in _in_parts(collection, rows):
        target.commit(Transaction(puts))


def _end(target: Store, epochs: Iterable[tuple[str, Document]], source: Store) -> None:
    """With its epochs it is a store to start on, also in the place of the source."""
    puts = [Put(EPOCHS, key, document) for key, document in epochs]
    copied = source.get(META, COPIED_KEY)
    ids = [*(copied["of"] if copied is not None else ()), *([source.id] if isinstance(source, NetworkStore) else ())]
    if ids:
        puts.append(Put(META, COPIED_KEY, {"of": ids[-COPIES_MAX:]}))
    target.commit(Transaction(puts, [Delete(META, COPYING_KEY)]))


def _in_parts(collection: str, rows: Iterator[tuple[str, Document]]) -> Iterator[list[Put]]:
    part: list[Put] = []
    for key, document in rows:
        part.append(Put(collection, key, document))
        if len(part) == ROWS_AT_ONCE:
            yield part
            part = []
    if part:
        yield part
