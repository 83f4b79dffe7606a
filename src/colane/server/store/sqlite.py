"""The default store: one SQLite file in WAL mode with synchronous FULL, so a commit survives a power cut.

One connection writes, one reads; each has its lock, so any thread may call any method.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from colane.server.store.store import AuditLine, Document, StoreError, Transaction

BUSY_TIMEOUT_S: Final = 5.0
"""A backup or a curious `sqlite3` shell may hold the lock for a moment; beyond that the write is refused."""

AUDIT_LINES_MAX: Final = 1_000_000
"""Lines kept when the store is opened, about 300 MB; older ones go. Job records hold the stories as well."""

MIGRATIONS: Final = (
    """
    CREATE TABLE documents (
        collection TEXT NOT NULL,
        key TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (collection, key)
    ) WITHOUT ROWID;
    CREATE TABLE audit (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s REAL NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    );
    """,
)
"""Step k brings schema version k to k + 1. Append only: stores in the field are brought up step by step."""


class SqliteStore:
    """A store in one SQLite file; see `colane.server.store.store.Store` for the methods.

    Args:
        path: The database file; made, readable by its owner only, when it is not there.
        busy_timeout_s: How long to wait for a lock that another process holds.

    Raises:
        StoreError: The file cannot be opened, is no database, is damaged, was written by a newer Colane, or is empty
            where a store was kept before.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._mark = path.with_name(f"{path.name}-made")
        self._busy_timeout_s = busy_timeout_s
        self._is_scrubbed = False
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._writer = self._connect()
            self._judge()
            self._migrate()
            self._mark.touch(0o600)
            self._reader = self._connect()
            self._files = {name: _identity(name) for name in (path, path.with_name(f"{path.name}-wal"))}
        except (sqlite3.Error, OSError) as error:
            raise self._error("opened", error) from error

    def commit(self, transaction: Transaction) -> int:
        self.check()
        puts = [(put.collection, put.key, json.dumps(put.document)) for put in transaction.puts]
        lines = [(entry.at_s, entry.kind, json.dumps(entry.body)) for entry in transaction.audit]
        with self._write_lock:
            if transaction.deletes or transaction.clears:
                self._is_scrubbed = False
            try:
                with self._writer:
                    return self._write(transaction, puts, lines)
            except sqlite3.Error as error:
                raise self._error("written", error) from error

    def _write(
        self, transaction: Transaction, puts: list[tuple[str, str, str]], lines: list[tuple[float, str, str]]
    ) -> int:
        write, clears = self._writer, [(name,) for name in transaction.clears]
        write.execute("BEGIN IMMEDIATE")
        write.executemany("DELETE FROM documents WHERE collection = ?", clears)
        write.executemany("DELETE FROM documents WHERE collection = ? AND key = ?", transaction.deletes)
        write.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", puts)
        write.executemany("INSERT INTO audit (at_s, kind, body) VALUES (?, ?, ?)", lines)
        return _last_number(write)

    def get(self, collection: str, key: str) -> Document | None:
        rows = self._read("SELECT body FROM documents WHERE collection = ? AND key = ?", collection, key)
        return json.loads(rows[0][0]) if rows else None

    def count(self, collection: str) -> int:
        return int(self._read("SELECT count(*) FROM documents WHERE collection = ?", collection)[0][0])

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        """Read in one query, decoded one by one."""
        rows = self._read("SELECT key, body FROM documents WHERE collection = ? ORDER BY key", collection)
        return ((key, json.loads(body)) for key, body in rows)

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        query = "SELECT key, body FROM documents WHERE collection = ? AND key > ? ORDER BY key LIMIT ?"
        return [(key, json.loads(body)) for key, body in self._read(query, collection, after, limit)]

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        values: list[str | int] = [collection]
        query = "SELECT key, body FROM documents WHERE collection = ?"
        if before is not None:
            query, values = f"{query} AND key < ?", [*values, before]
        query += " AND instr(body, ?)" * len(containing) + " ORDER BY key DESC LIMIT ?"
        return [(key, json.loads(body)) for key, body in self._read(query, *values, *containing, limit)]

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        query = "SELECT number, at_s, kind, body FROM audit WHERE number > ? ORDER BY number LIMIT ?"
        rows = self._read(query, after, limit)
        return [AuditLine(number, at_s, kind, json.loads(body)) for number, at_s, kind, body in rows]

    def last_audit_number(self) -> int:
        with self._read_lock:
            try:
                return _last_number(self._reader)
            except sqlite3.Error as error:
                raise self._error("read", error) from error

    def check(self) -> None:
        """SQLite would go on writing into files that have lost their names."""
        for path, known in self._files.items():
            if _identity(path) != known:
                raise StoreError(
                    f"the store's file {path} was deleted, moved or replaced while the scheduler runs, so nothing can "
                    "be kept: put it back, or stop the scheduler and start it on the files that are there"
                )

    def scrub(self) -> None:
        """See `Store.scrub`.

        What is deleted is overwritten with zeros (`secure_delete`), but the write-ahead log keeps the pages of before
        until it is written into the file and cut off (https://sqlite.org/pragma.html#pragma_wal_checkpoint).
        """
        with self._write_lock, self._read_lock:
            if self._is_scrubbed:
                return
            try:
                is_busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise self._error("written", error) from error
            self._is_scrubbed = not is_busy

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    def _read(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        with self._read_lock:
            try:
                with closing(self._reader.execute(query, values)) as cursor:
                    return cursor.fetchall()
            except sqlite3.Error as error:
                raise self._error("read", error) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    def _judge(self) -> None:
        """Believe nothing of a file that is damaged, or that has been emptied under living agents."""
        flaw = str(self._writer.execute("PRAGMA quick_check(1)").fetchone()[0])
        if flaw != "ok":
            raise StoreError(f"the store {self._path} is damaged ({flaw.splitlines()[-1]}): put a copy of it back")
        if self._version() == 0 and self._mark.exists():
            raise StoreError(
                f"the store {self._path} is empty or gone, but there was one here: put it back, or remove {self._mark} "
                "to begin anew, without any job"
            )

    def _version(self) -> int:
        return int(self._writer.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self) -> None:
        version = self._version()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"the store {self._path} was written by a newer Colane (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); start that one, or use another --state directory"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            self._writer.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
        self._writer.execute("DELETE FROM audit WHERE number <= ?", (_last_number(self._writer) - AUDIT_LINES_MAX,))

    def _error(self, deed: str, error: Exception) -> StoreError:
        return StoreError(f"the store {self._path} could not be {deed}: {error}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _last_number(connection: sqlite3.Connection) -> int:
    # sqlite_sequence keeps counting when old lines are removed.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'audit'").fetchone()
    return int(row[0]) if row else 0
