"""A store made anew from the records of a damaged one that can be read, for where there is no copy to put back."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from colane.api.forms import UNREADABLE
from colane.server.board.read_model import COUNTERS_KEY, DECODERS, Counters, encode_counters
from colane.server.board.slices import KEY, read_slice
from colane.server.store.checksums import checksum, decoded, shown
from colane.server.store.sqlite import COUNTED_FROM, MIGRATIONS, SUMMED_FROM, TROUBLE, know_checksums, missing, recount
from colane.server.store.store import (
    ASSIGNED_JOBS,
    AUDIT,
    COLLECTIONS,
    FINISHED_JOBS,
    LAUNCH_SPECS,
    META,
    NODES,
    SUBMITTED_JOBS,
    UNREADABLE_LINE,
    StoreError,
    Unreadable,
)
from colane.server.upkeep.copies import put_aside, read_only

JOBS = (SUBMITTED_JOBS, ASSIGNED_JOBS, FINISHED_JOBS)
Row = tuple[str, str, str]


class SetAside(NamedTuple):
    """What a store was made anew without."""

    left_out: tuple[str, ...]  # names of the records that could not be read
    replaced: Path  # where the store of before lies, with these


def set_aside(path: Path) -> SetAside | None:
    """Make a store anew from what can be read of it, while no scheduler runs on it; None where all can be.

    Numbers that must not be given twice go on behind all that are left. What agents know of the cluster is judged by
    what is left of its identity and its epochs: those that know what is gone begin anew. Raises StoreError: the file
    itself is damaged, so that records are not to be told from one another, or is not to be written.
    """
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    fresh = path.with_name(f"{path.name}.new")
    try:
        with closing(read_only(path)) as old:
            flaw = str(old.execute("PRAGMA quick_check(1)").fetchone()[0])
            schema = int(old.execute("PRAGMA user_version").fetchone()[0])
            if flaw != "ok" or not SUMMED_FROM <= schema <= len(MIGRATIONS):
                because = flaw.splitlines()[-1] if flaw != "ok" else f"its schema is {schema}"
                raise StoreError(f"{path} cannot be made anew ({because}): put a copy of it back (colane restore)")
            fresh.unlink(missing_ok=True)
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(fresh, isolation_level=None)) as made:
                left_out = _copy_readable(old, made)
                left_out += map(str, missing(old) if schema >= COUNTED_FROM else ())
        if not left_out:
            fresh.unlink()
            return None
        replaced = put_aside(path)
        assert replaced is not None  # noqa: S101 - it was read
        fresh.replace(path)
    except (*TROUBLE, OSError) as error:
        fresh.unlink(missing_ok=True)
        raise StoreError(f"the store {path} could not be made anew: {error}") from error
    return SetAside(tuple(left_out), replaced)


def _copy_readable(old: sqlite3.Connection, made: sqlite3.Connection) -> list[str]:
    """Write what can be read into a new file; return the names of the rest."""
    old.text_factory = bytes
    know_checksums(made)
    for number, script in enumerate(MIGRATIONS, start=1):
        made.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
    left_out: list[str] = []
    kept = list(_readable_rows(old, left_out))
    lines = list(_lines(old, left_out))
    live = {key for collection, key, _ in kept if collection in {SUBMITTED_JOBS, ASSIGNED_JOBS}}
    kept = [row for row in kept if row[0] != LAUNCH_SPECS or row[1] in live]  # no secret stays of a job that is gone
    if all(row[:2] != (META, COUNTERS_KEY) for row in kept):
        kept.append((META, COUNTERS_KEY, json.dumps(encode_counters(_counters_behind(kept, lines)))))
    made.execute("BEGIN")
    made.executemany("INSERT INTO documents VALUES (?1, ?2, ?3, checksum(?1, ?2, ?3))", kept)
    made.executemany("INSERT INTO audit VALUES (?1, ?2, ?3, ?4, checksum(?1, ?2, ?3, ?4))", lines)
    recount(made)
    made.execute("COMMIT")
    return left_out


def _readable_rows(old: sqlite3.Connection, left_out: list[str]) -> Iterator[Row]:
    query = "SELECT collection, key, body, checksum, typeof(collection) || typeof(key) FROM documents"
    for collection, key, body, known, types in old.execute(query):
        name = shown(collection)
        record = decoded(name, key, body)
        is_whole = checksum(collection, key, body) == known and types == b"texttext" and name in COLLECTIONS
        if is_whole and not isinstance(record, Unreadable) and _means_something(name, record[1]):
            yield name, record[0], body.decode()
        else:
            left_out.append(f"{name} {shown(key)}")


def _means_something(collection: str, document: Any) -> bool:  # noqa: ANN401 - as JSON has it
    try:
        DECODERS.get(collection, dict)(document)
    except UNREADABLE:
        return False
    return True


def _lines(old: sqlite3.Connection, left_out: list[str]) -> Iterator[tuple[int, float, str, str]]:
    """All lines of the log, one in the place of each that cannot be read, so that they are as many."""
    for number, at_s, kind, body, known in old.execute("SELECT number, at_s, kind, body, checksum FROM audit"):
        if checksum(number, at_s, kind, body) == known:
            yield number, at_s, kind.decode(), body.decode()
        else:
            left_out.append(f"{AUDIT} {number}")
            yield number, 0.0, UNREADABLE_LINE, "{}"


def _counters_behind(kept: list[Row], lines: list[tuple[int, float, str, str]]) -> Counters:
    """Counters that give nothing again of what is left: records, and what the log tells of others."""
    told = (json.loads(body).get("job") for _, _, kind, body in lines if kind == "job")
    jobs = [int(key) for collection, key, _ in kept if collection in JOBS]
    jobs += [job for job in told if isinstance(job, int)]
    coming = [body for collection, key, body in kept if collection == META and key.startswith(KEY)]
    jobs += [read_slice(json.loads(body)).end - 1 for body in coming]
    nodes = [json.loads(body) for collection, _, body in kept if collection == NODES]
    return Counters(
        max(jobs, default=0) + 1,
        max((node["order"] for node in nodes), default=-1) + 1,
        max((node["generation"] for node in nodes), default=0) + 1,
    )
