"""The default store: one SQLite file in WAL mode with synchronous FULL, so a commit survives a power cut.

One connection writes, one reads; each has its lock, so any thread may call any method.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from colane.server.store.checksums import ALTERED, SqlReading, checksum, document_text, json_text, shown, text_checksum
from colane.server.store.store import (
    AUDIT,
    AUDIT_LINES_MAX,
    EPOCHS,
    AuditLine,
    Delete,
    Document,
    Durability,
    Put,
    StoreError,
    StoreWriter,
    Transaction,
    Unreadable,
    judge_writer,
)

BUSY_TIMEOUT_S: Final = 5.0
"""A backup or a curious `sqlite3` shell may hold the lock for a moment; beyond that the write is refused."""

PAGE_BYTES: Final = 8192
"""A record of up to a quarter of it lies in one page with others: of SQLite's 4,096 bytes each launch of 1 kB took one
beside, of its own, by which a batch's commit wrote 12 MB where 5 do. Files of before keep theirs."""

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
    """
    ALTER TABLE documents ADD COLUMN checksum INTEGER NOT NULL DEFAULT -1;
    UPDATE documents SET checksum = checksum(CAST(collection AS BLOB), CAST(key AS BLOB), CAST(body AS BLOB));
    ALTER TABLE audit ADD COLUMN checksum INTEGER NOT NULL DEFAULT -1;
    UPDATE audit SET checksum = checksum(number, at_s, CAST(kind AS BLOB), CAST(body AS BLOB));
    """,
    """
    CREATE TABLE head (version INTEGER NOT NULL);
    INSERT INTO head VALUES (0);
    """,
    """
    CREATE TABLE counts (collection TEXT PRIMARY KEY, records INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO counts SELECT collection, count(*) FROM documents GROUP BY collection;
    """,
)
"""Step k brings schema version k to k + 1. Append only: stores in the field are brought up step by step."""

SUMMED_FROM: Final = 2  # the first schema whose records have checksums
COUNTED_FROM: Final = 4  # the first schema that counts them

ADD_LINE: Final = "INSERT INTO audit (number, at_s, kind, body, checksum) VALUES (?, ?, ?, ?, ?)"
DAMAGED: Final = "the store {path} is damaged ({flaw}): put a copy of it back (colane restore)"


TROUBLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What reading of a file may raise: of one whose schema is damaged SQLite quotes bytes that are no text."""

MAKE_ROOM: Final = "make room on its disk"
FIXES: Final = (
    ("disk is full", MAKE_ROOM),
    ("No space left", f"{MAKE_ROOM}, also for more files (df -i)"),
    ("unable to open database file", "may this user write there, and is there room for more files (df -i)?"),
    ("readonly database", "let this user write it"),
    ("Permission denied", "let this user read and write it"),
    ("database is locked", "another program holds it: end that one"),
    ("disk I/O error", "see what the system says of its disk (dmesg)"),
)
"""What a person can do, by what SQLite or the system says."""


def know_checksums(connection: sqlite3.Connection) -> None:
    """Let a connection compute them, as migrations do."""
    connection.create_function("checksum", -1, checksum, deterministic=True)


class SqliteStore(SqlReading):
    """A store in one SQLite file; see `colane.server.store.store.Store` for the methods.

    Args:
        path: The database file; made, readable by its owner only, when it is not there.
        busy_timeout_s: How long to wait for a lock that another process holds.

    Raises:
        StoreError: The file cannot be opened, is no database, is damaged, was written by a newer Colane, or is empty
            where a store was kept before.
    """

    VALUE = "?"
    CONTAINS = "instr(body, ?)"

    def __init__(self, path: Path, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        super().__init__()
        self._path = path
        self._mark = path.with_name(f"{path.name}-made")
        self._busy_timeout_s = busy_timeout_s
        self._is_scrubbed = False
        self._open: list[sqlite3.Connection] = []
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._writer = self._connect()
            self._judge()
            self._migrate()
            self._mark.touch(0o600)
            self._reader = self._connect()
            self._reader.text_factory = bytes  # what is no UTF-8 is one record's flaw, not the whole query's
            self._look_through()
            self._files = {name: _identity(name) for name in (path, path.with_name(f"{path.name}-wal"))}
        except (*TROUBLE, OSError) as error:
            self._let_go()
            raise self._error("opened", error) from error
        except StoreError:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Close what is open of a store that cannot be used; a migration that was under way is undone by that."""
        for connection in self._open:
            connection.close()

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        self.check()
        puts = [_row(put.collection, put.key, document_text(put.collection, put.document)) for put in transaction.puts]
        lines = [(float(entry.at_s), entry.kind, json_text(entry.body)) for entry in transaction.audit]
        with self._write_lock:
            if transaction.deletes or transaction.clears:
                self._is_scrubbed = False
            with self._told("written"), self._writer:
                last = self._write(transaction, puts, lines, writer)
            self._forget_unreadable(transaction)
            return last

    def _write(
        self,
        transaction: Transaction,
        puts: list[tuple[str, str, str, int]],
        lines: list[tuple[float, str, str]],
        writer: StoreWriter | None,
    ) -> int:
        write, clears = self._writer, [(name,) for name in transaction.clears]
        write.execute("BEGIN IMMEDIATE")
        last = _last_number(write)
        if writer is not None:
            newest = write.execute("SELECT max(key) FROM documents WHERE collection = ?", (EPOCHS,)).fetchone()[0]
            judge_writer(writer, int(newest or 0), last, self._version_of(write))
            if writer.version is not None:
                write.execute("UPDATE head SET version = ?", (writer.version + 1,))
        write.executemany("DELETE FROM documents WHERE collection = ?", clears)
        write.executemany("UPDATE counts SET records = 0 WHERE collection = ?", clears)
        gained = Counter[str]()
        for collection, keys in _by_collection(transaction.deletes):
            gained[collection] -= _held(write, collection, keys)
        write.executemany("DELETE FROM documents WHERE collection = ? AND key = ?", transaction.deletes)
        for collection, keys in _by_collection(transaction.puts):
            gained[collection] += len(keys) - _held(write, collection, keys)
        write.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", puts)
        write.executemany(
            "INSERT INTO counts VALUES (?, ?) ON CONFLICT DO UPDATE SET records = records + excluded.records",
            [(collection, by) for collection, by in gained.items() if by],
        )
        numbered = [(number, *line, checksum(number, *line)) for number, line in enumerate(lines, start=last + 1)]
        write.executemany(ADD_LINE, numbered)
        return last + len(lines)

    def get(self, collection: str, key: str) -> Document | None:
        rows = self._read(self._where("collection = ? AND key = ?"), collection, key)
        return self._document(self._decoded(collection, *rows[0])) if rows else None

    def remember(self, *collections: str) -> None:
        """Nothing: no scheduler waits beside one on a file."""

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        """Read in one query, decoded one by one."""
        rows = self._read(self._where("collection = ? ORDER BY key"), collection)
        return self._noted(self._decoded(collection, *row) for row in rows)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        query = "SELECT number, at_s, kind, body, checksum FROM audit WHERE number > ? ORDER BY number LIMIT ?"
        return [self._line(*row) for row in self._read(query, after, limit)]

    def _line(self, number: int, at_s: float, kind: bytes, body: bytes, known: int) -> AuditLine:
        if checksum(number, at_s, kind, body) == known:
            return AuditLine(number, at_s, kind.decode(), json.loads(body))
        return self._altered_line(number)

    def last_audit_number(self) -> int:
        with self._read_lock, self._told("read"):
            return _last_number(self._reader)

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        rows = [(line.number, float(line.at_s), line.kind, json.dumps(line.body)) for line in lines]
        with self._write_lock, self._told("written"), self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.executemany(ADD_LINE, [(*row, checksum(*row)) for row in rows])

    def version(self) -> int:
        with self._read_lock, self._told("read"):
            return self._version_of(self._reader)

    def note_missing(self) -> None:
        """Nothing new: only this process writes the file, and it was looked through when it was opened."""

    def check(self) -> None:
        """SQLite would go on writing into files that have lost their names."""
        for path, known in self._files.items():
            if _identity(path) != known:
                raise StoreError(
                    f"the store's file {path} was deleted, moved or replaced while the scheduler runs, so nothing can "
                    "be kept: put it back, or stop the scheduler and start it on the files that are there"
                )

    def durability(self) -> Durability:
        return Durability("sqlite")

    def scrub(self) -> None:
        """Write the write-ahead log into the file, and cut it off.

        What is deleted is overwritten with zeros (`secure_delete`), but the write-ahead log keeps the pages of before
        until it is written into the file and cut off (https://sqlite.org/pragma.html#pragma_wal_checkpoint).
        """
        with self._write_lock, self._read_lock:
            if self._is_scrubbed:
                return
            with self._told("written"):
                is_busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._is_scrubbed = not is_busy

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    def _read(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        with self._read_lock, self._told("read"), closing(self._reader.execute(query, values)) as cursor:
            return cursor.fetchall()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        self._open.append(connection)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a file that is new
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        know_checksums(connection)
        return connection

    def _judge(self) -> None:
        """Believe nothing of a file that is damaged, or that has been emptied under living agents."""
        flaw = str(self._writer.execute("PRAGMA quick_check(1)").fetchone()[0])
        if flaw != "ok":
            raise StoreError(DAMAGED.format(path=self._path, flaw=flaw.splitlines()[-1]))
        if self._schema() == 0 and self._mark.exists():
            raise StoreError(
                f"the store {self._path} is empty or gone, but there was one here: put it back, or remove {self._mark} "
                "to begin anew, without any job"
            )

    def _look_through(self) -> None:
        try:
            for record in (*altered(self._reader), *missing(self._reader)):
                self._note(record)
        except StoreError as error:
            raise StoreError(DAMAGED.format(path=self._path, flaw=error)) from error

    def _schema(self) -> int:
        return int(self._writer.execute("PRAGMA user_version").fetchone()[0])

    def _version_of(self, connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT version FROM head").fetchone()
        if row is None or not isinstance(row[0], int):
            raise StoreError(DAMAGED.format(path=self._path, flaw="its version is no number"))
        return row[0]

    def _migrate(self) -> None:
        version = self._schema()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"the store {self._path} was written by a newer Colane (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); start that one, or use another --state directory"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            self._writer.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
        self._writer.execute(
            "DELETE FROM audit WHERE number <= (SELECT number FROM audit ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (AUDIT_LINES_MAX,),
        )

    @contextmanager
    def _told(self, deed: str) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            raise self._error(deed, error) from error

    def _error(self, deed: str, error: Exception) -> StoreError:
        if isinstance(error, UnicodeDecodeError):
            return StoreError(DAMAGED.format(path=self._path, flaw="its schema is no text"))
        text = " ".join(str(getattr(error, "strerror", None) or error).split())  # a schema that it quotes has lines
        fix = next((f"; {fix}" for word, fix in FIXES if word in text), "")
        return StoreError(f"the store {self._path} could not be {deed}: {text}{fix}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _last_number(connection: sqlite3.Connection) -> int:
    # Only the oldest lines are ever removed, and never all of them.
    row = connection.execute("SELECT max(number) FROM audit").fetchone()
    return int(row[0] or 0)


def _row(collection: str, key: str, body: str) -> tuple[str, str, str, int]:
    return collection, key, body, text_checksum(collection, key, body)


def _by_collection(changes: Iterable[Put | Delete]) -> Iterable[tuple[str, set[str]]]:
    keys: dict[str, set[str]] = {}
    for change in changes:
        keys.setdefault(change.collection, set()).add(change.key)
    return keys.items()


def _held(connection: sqlite3.Connection, collection: str, keys: set[str]) -> int:
    """Return how many of these keys a collection holds."""
    query = "SELECT count(*) FROM json_each(?) AS asked JOIN documents AS d ON d.collection = ? AND d.key = asked.value"
    return int(connection.execute(query, (json.dumps([*keys]), collection)).fetchone()[0])


def missing(read: sqlite3.Connection) -> Iterator[Unreadable]:
    """Yield what is said of each collection with fewer records than were counted."""
    found = "(SELECT count(*) FROM documents WHERE documents.collection = counts.collection)"
    query = f"SELECT * FROM (SELECT collection, records, {found} AS found FROM counts) WHERE found < records"  # noqa: S608
    for collection, counted, found_there in read.execute(query):
        yield Unreadable.missing(shown(collection), counted, found_there)


def recount(connection: sqlite3.Connection) -> None:
    """Take what a file holds for all that it should hold."""
    connection.execute("DELETE FROM counts")
    connection.execute("INSERT INTO counts SELECT collection, count(*) FROM documents GROUP BY collection")


def altered(read: sqlite3.Connection) -> Iterator[Unreadable]:
    """Look through all records of a connection that gives texts as bytes; yield those not as they were written.

    Raises StoreError: they are not in their order, so that others are not found where they are looked for.
    """
    before = (b"", b"")
    for collection, key, body, known in read.execute("SELECT collection, key, body, checksum FROM documents"):
        if checksum(collection, key, body) != known:
            yield Unreadable(shown(collection), shown(key), ALTERED)
        if not before < (collection, key):
            raise StoreError(f"the record {shown(collection)} {shown(key)} is out of order")
        before = collection, key
    # A text whose type alone was changed has the same bytes, and is found by no comparison any more.
    others = "typeof(collection) || typeof(key) || typeof(body) != 'texttexttext'"
    for collection, key in read.execute(f"SELECT collection, key FROM documents WHERE {others}"):  # noqa: S608
        yield Unreadable(shown(collection), shown(key), ALTERED)
    for number, at_s, kind, body, known in read.execute("SELECT number, at_s, kind, body, checksum FROM audit"):
        if checksum(number, at_s, kind, body) != known:
            yield Unreadable(AUDIT, str(number), ALTERED)
