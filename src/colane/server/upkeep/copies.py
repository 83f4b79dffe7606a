"""Copies of a store: made while a scheduler runs on it, put back while none does, and looked through."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from colane.api.forms import UNREADABLE
from colane.server.board.read_model import DECODERS
from colane.server.store.checksums import decoded
from colane.server.store.identity import put_back
from colane.server.store.sqlite import COUNTED_FROM, MIGRATIONS, SUMMED_FROM, TROUBLE, SqliteStore, altered, missing
from colane.server.store.store import StoreError, Unreadable

REPLACED: Final = ".replaced"  # ends the name that the store of before has once a copy was put in its place


def backup(path: Path, copy: Path) -> int:
    """Copy a store as it is at one moment; a scheduler that runs on it goes on.

    Args:
        path: The store's file.
        copy: The file to make, for its owner only.

    Returns:
        How many bytes were written.

    Raises:
        StoreError: There is no store, it cannot be read, or the copy cannot be written.
        FileExistsError: There is such a file.
    """
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        _copy(path, copy)
        return copy.stat().st_size
    except (*TROUBLE, OSError) as error:
        copy.unlink(missing_ok=True)
        raise StoreError(f"the store {path} could not be copied to {copy}: {error}") from error


def restore(copy: Path, path: Path) -> Path | None:
    """Put a copy in the place of a store that no scheduler runs on.

    The cluster is another one from then on: its job ids are given a second time, so what agents keep of jobs under
    these ids is not theirs.

    Args:
        copy: Made by `backup`.
        path: Where the store is, or was.

    Returns:
        Where the store of before lies now; None where there was none.

    Raises:
        StoreError: The copy is no store, is damaged, is a newer Colane's, or cannot be put there.
    """
    flaws = list(check(copy).flaws)
    if flaws:
        raise StoreError(f"{copy} cannot be put back: {flaws[0]}")
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        _copy(copy, fresh)
        store = SqliteStore(fresh)
        try:
            put_back(store)
        finally:
            store.close()
        with closing(sqlite3.connect(fresh)) as made:
            made.execute("PRAGMA journal_mode = DELETE")
        fresh.chmod(0o600)
        replaced = put_aside(path)
        fresh.replace(path)
    except (*TROUBLE, OSError, StoreError) as error:
        fresh.unlink(missing_ok=True)
        raise StoreError(f"{copy} could not be put back at {path}: {error}") from error
    finally:
        fresh.with_name(f"{fresh.name}-made").unlink(missing_ok=True)
    return replaced


def _copy(path: Path, to: Path) -> None:
    with closing(read_only(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it to be forgotten


def read_only(path: Path) -> sqlite3.Connection:
    """Open a store's file without the right to change it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def put_aside(path: Path) -> Path | None:
    """Keep the store of before under a name of its own, whole: what its log holds is written into it first."""
    if not path.exists():
        return None
    names = (path.with_name(f"{path.name}{REPLACED}{number or ''}") for number in count())
    replaced = next(name for name in names if not name.exists())
    with suppress(*TROUBLE), closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for beside in ("-wal", "-shm"):  # of a damaged one they are left, and may hold what the file does not
        left = path.with_name(path.name + beside)
        if left.exists():
            left.rename(replaced.with_name(replaced.name + beside))
    return path.rename(replaced)


class StoreFindings(NamedTuple):
    """What a store holds, and what is wrong with it."""

    schema: int  # its version; 0 where it is no store
    counts: Mapping[str, int]  # documents by collection
    flaws: tuple[str, ...]  # each names what cannot be believed


def check(path: Path) -> StoreFindings:
    """Look through a store; a scheduler that runs on it goes on.

    Raises StoreError: there is no such file, or it cannot be read at all.
    """
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    try:
        with closing(read_only(path)) as read:
            flaw = str(read.execute("PRAGMA integrity_check(1)").fetchone()[0])
            if flaw != "ok":
                return StoreFindings(0, {}, (f"it is damaged: {flaw.splitlines()[-1]}",))
            schema = int(read.execute("PRAGMA user_version").fetchone()[0])
            if not schema:
                return StoreFindings(0, {}, ("it is no store of Colane, or an empty one",))
            if schema > len(MIGRATIONS):
                newer = f"it was written by a newer Colane (schema {schema}, this one knows {len(MIGRATIONS)})"
                return StoreFindings(schema, {}, (newer,))
            counts = dict(read.execute("SELECT collection, count(*) FROM documents GROUP BY collection").fetchall())
            read.text_factory = bytes
            found = [*(altered(read) if schema >= SUMMED_FROM else ()), *_senseless(read)]
            found += missing(read) if schema >= COUNTED_FROM else ()
            return StoreFindings(schema, counts, tuple({str(one): None for one in found}))
    except StoreError as error:
        return StoreFindings(schema, counts, (f"it is damaged: {error}",))
    except TROUBLE as error:
        return StoreFindings(0, {}, (f"it is no database, or a damaged one: {error}",))


def _senseless(read: sqlite3.Connection) -> Iterator[Unreadable]:
    """Records that mean nothing to their readers, be they as they were written or not."""
    for name, key, body in read.execute("SELECT collection, key, body FROM documents"):
        collection = name.decode(errors="replace")
        record = decoded(collection, key, body)
        if isinstance(record, Unreadable):
            yield record
            continue
        try:
            DECODERS.get(collection, dict)(record[1])
        except UNREADABLE as error:
            yield Unreadable(collection, record[0], f"{type(error).__name__}: {error}")
