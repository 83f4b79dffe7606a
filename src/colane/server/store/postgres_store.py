"""A store in Postgres: one statement a commit, which is a transaction of its own (docs/how-to/stores.md).

One connection writes, one reads; each has its lock, so any thread may call any method. One that broke is made anew.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors, sql

from colane.client.tls import CA_VARIABLE
from colane.server.store.checksums import SqlReading, checksum, document_text, json_text, text_checksum
from colane.server.store.network import ANSWER_MAX_S, CONNECT_MAX_S, SCHEMA, NetworkStore
from colane.server.store.postgres_functions import CALL, COUNTS, FUNCTION, TABLES
from colane.server.store.store import (
    AUDIT_LINES_MAX,
    COPIED_KEY,
    META,
    AuditLine,
    Document,
    Durability,
    Snapshot,
    StoreError,
    StoreWriter,
    Transaction,
)
from colane.settings.store_address import StoreAddress

# -- Whether a Postgres keeps what it has acknowledged: looked at when its store is opened.

WANTED: Final = (
    ("fsync", "on", "fsync is {}: a power cut loses or damages all; set it to on"),
    ("full_page_writes", "on", "full_page_writes is {}: a power cut may damage it; set it to on"),
)
"""Settings, the value that keeps all, and what another means. `synchronous_commit` is set by ourselves."""
STANDBYS: Final = (
    "it has standbys and synchronous_standby_names is empty: one that lags may take over and lack what was "
    "acknowledged; name one there"
)


def durability(connection: psycopg.Connection[tuple[Any, ...]]) -> Durability:
    """Return what may be lost there. Raises psycopg.Error: it does not answer."""
    risks = []
    for name, good, told in WANTED:
        value = _one(connection, name)
        if value != good:
            risks.append(told.format(value))
    standbys = connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone()
    if standbys != (0,) and not _one(connection, "synchronous_standby_names"):
        risks.append(STANDBYS)
    return Durability("postgres", tuple(risks))


def _one(connection: psycopg.Connection[tuple[Any, ...]], name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    return "" if row is None else str(row[0])


OPENING_LOCK: Final = 0x636F6C616E65  # two that open a new store at once make its tables one after the other

GONE: Final = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName, errors.UndefinedColumn)

Connection = psycopg.Connection[tuple[Any, ...]]
Answer = TypeVar("Answer")


class PostgresStore(SqlReading, NetworkStore):
    """A store in Postgres; see `colane.server.store.store.Store` for the methods.

    Args:
        address: Where the server is, its database, and the name of the cluster there, which is that of a schema.
        password: To log in with; None where none is needed.
        made_before: Id of the store that was there when it was opened last; None where none is known of.
        may_make: Whether one is made where there is none, and was none.

    Raises:
        StoreError: There is no such server, it refuses us, has a newer Colane's store or another than before, or none
            where there was one before.
    """

    VALUE = "%s"
    CONTAINS = "strpos(body, ?) > 0"

    def __init__(
        self,
        address: StoreAddress,
        password: str | None = None,
        *,
        made_before: str | None = None,
        may_make: bool = True,
    ) -> None:
        super().__init__()
        self.address = address
        self._writer = _PostgresLine(address, password)
        self._reader = _PostgresLine(address, password)
        try:
            self.id = self._opened(made_before, may_make=may_make and made_before is None)
            if made_before not in {None, self.id}:
                self._judge_other(str(made_before), self.get(META, COPIED_KEY))
            self._durability: Durability = self._use(self._writer, "opened", durability)
        except StoreError:
            self.close()
            raise

    def _opened(self, made_before: str | None, *, may_make: bool) -> str:
        found = self._use(self._writer, "opened", lambda connection: _make(connection, self.address, may_make))
        return self._judge_opened(found, made_before)

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        puts = {}
        for put in transaction.puts:  # the last one of a key counts
            text = document_text(put.collection, put.document)
            puts[put.collection, put.key] = (text, text_checksum(put.collection, put.key, text))
        lines = [json_text([float(entry.at_s), entry.kind, entry.body]) for entry in transaction.audit]
        values: list[Any] = [self.id, *(writer or (None, None, None)), list(transaction.clears)]
        values += [[one.collection for one in transaction.deletes], [one.key for one in transaction.deletes]]
        values += [[collection for collection, _ in puts], [key for _, key in puts]]
        values += [[text for text, _ in puts.values()], [sum_ for _, sum_ in puts.values()]]
        values += [lines, [text_checksum(line) for line in lines]]
        word, number = self._rows(self._writer, "written", CALL, *values)[0]
        self._judge_commit(word, number, writer)
        self._forget_unreadable(transaction)
        return int(number)

    def get(self, collection: str, key: str) -> Document | None:
        query = (
            "SELECT d.key, d.body, d.checksum FROM head LEFT JOIN documents d ON d.collection = %s AND d.key = %s "
            "WHERE head.id = %s"
        )
        rows = self._read(query, collection, key, self.id)
        if not rows:
            raise self._gone()
        if rows[0][0] is None:
            return None
        return self._document(self._decoded(collection, *rows[0]))

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        """Read in one query, decoded one by one."""
        rows = self._read(self._where("collection = ? ORDER BY key"), collection)
        return self._all(collection, rows, self._decoded)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        query = "SELECT number, body, checksum FROM audit WHERE number > %s ORDER BY number LIMIT %s"
        return [self._audit_line(*row) for row in self._read(query, after, limit)]

    def _audit_line(self, number: int, body: str, known: int) -> AuditLine:
        if checksum(body) == known:
            return AuditLine(number, *json.loads(body))
        return self._altered_line(number)

    def snapshot(self) -> Snapshot:
        def together(connection: Connection) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                head = connection.execute("SELECT events FROM head WHERE id = %s", [self.id], prepare=False).fetchall()
                rows = connection.execute("SELECT collection, key, body, checksum FROM documents ORDER BY 1, 2")
                return head, rows.fetchall()

        head, rows = self._use(self._reader, "read", together)
        if not head:
            raise self._gone()
        documents: dict[str, list[tuple[str, Document]]] = {}
        for collection, *row in rows:
            documents.setdefault(collection, []).extend(self._noted([self._decoded(collection, *row)]))
        return Snapshot(int(head[0][0]), documents)

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        texts = [json.dumps([float(line.at_s), line.kind, line.body]) for line in lines]
        values = ([line.number for line in lines], texts, [checksum(text) for text in texts])
        query = "INSERT INTO audit SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[])"

        def add(connection: Connection) -> None:
            with connection.transaction():
                connection.execute(query, values)
                connection.execute("UPDATE head SET events = %s", [lines[-1].number])

        if lines:
            self._use(self._writer, "written", add)

    def last_audit_number(self) -> int:
        return self._counter("SELECT events FROM head WHERE id = %s")

    def version(self) -> int:
        return self._counter("SELECT version FROM head WHERE id = %s")

    def _counter(self, query: str) -> int:
        rows = self._read(query, self.id)
        if not rows:
            raise self._gone()
        return int(rows[0][0])

    def note_missing(self) -> None:
        query = (
            "SELECT collection, records, (SELECT count(*) FROM documents d WHERE d.collection = counts.collection) "
            "FROM counts, head WHERE counted = events || ':' || version"
        )
        rows = self._read(query)
        self._note_fewer({name: counted for name, counted, _ in rows}, {name: found for name, _, found in rows})

    def scrub(self) -> None:
        """Do nothing: Postgres overwrites what was deleted once it has room to reuse."""

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def _read(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:
        return self._rows(self._reader, "read", query, *values)

    def _rows(self, line: _PostgresLine, deed: str, query: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            # Unprepared: a pooler between us and the server gives each statement another connection.
            return connection.execute(query, values, prepare=False).fetchall()

        return self._use(line, deed, ask)

    def _use(self, line: _PostgresLine, deed: str, ask: Callable[[Connection], Answer]) -> Answer:
        try:
            try:
                with line.connected() as connection:
                    return ask(connection)
            except psycopg.OperationalError:
                if deed != "read" or line.is_connected:
                    raise
            with line.connected() as connection:  # reading changes nothing, so it is done again where the line broke
                return ask(connection)
        except GONE as error:
            raise self._gone() from error
        except (psycopg.Error, OSError) as error:
            raise StoreError(f"the store {self.address} could not be {deed}: {said(error)}") from error


class _PostgresLine:
    """A connection that is made when it is first needed, and again after it broke."""

    def __init__(self, address: StoreAddress, password: str | None) -> None:
        self._address = address
        self._password = password
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._guard = _Guard()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that is not known to have broken."""
        return self._connection is not None

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Hold the connection; what takes too long ends with it."""
        with self._lock:
            if self._connection is None or self._connection.closed or self._connection.broken:
                self._connection = _connect(self._address, self._password)
            connection = self._connection
            self._guard.watch(connection)
            try:
                yield connection
            except BaseException:
                if connection.closed or connection.broken:
                    self._connection = None
                raise
            finally:
                self._guard.rest()

    def close(self) -> None:
        with self._lock:
            self._guard.end()
            if self._connection is not None:
                self._connection.close()
                self._connection = None


class _Guard:
    """Ends a connection whose server does not answer in time.

    Its one thread sleeps on while answers come: a timer for each statement would start a thread for each.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._watched: Connection | None = None
        self._due_s = self._wakes_s = math.inf

    def watch(self, connection: Connection) -> None:
        """End it unless `rest` is called in time."""
        with self._changed:
            self._watched, self._due_s = connection, time.monotonic() + ANSWER_MAX_S
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="colane-postgres", daemon=True)
                self._thread.start()
            elif self._due_s < self._wakes_s:
                self._changed.notify()

    def rest(self) -> None:
        """The answer has come, or the connection has broken."""
        with self._changed:
            self._watched = None

    def end(self) -> None:
        """Let the thread end; a connection that is watched later is so by another."""
        with self._changed:
            self._thread = None
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._thread is threading.current_thread():
                left_s = self._due_s - time.monotonic()
                if self._watched is None:
                    self._due_s = left_s = math.inf
                elif left_s <= 0:
                    _hang_up(self._watched)
                    self._watched, self._due_s, left_s = None, math.inf, math.inf
                self._wakes_s = self._due_s
                self._changed.wait(None if left_s == math.inf else left_s)


def _hang_up(connection: Connection) -> None:
    """End a connection whose server does not answer; what waits for it is told so."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        return


def _connect(address: StoreAddress, password: str | None) -> Connection:
    given: dict[str, Any] = {
        "host": address.host or address.path or None,
        "port": address.port or None,
        "dbname": address.database,
        "user": address.user or None,
        "password": password,
        "connect_timeout": int(CONNECT_MAX_S),
        "tcp_user_timeout": int(ANSWER_MAX_S * 1000),
        "application_name": "colane",
        "sslmode": address.sslmode or None,
        "sslrootcert": os.environ.get(CA_VARIABLE) if address.sslmode else None,
    }
    connection = psycopg.connect(autocommit=True, **{name: value for name, value in given.items() if value is not None})
    try:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(address.name)))
        connection.execute("SET client_min_messages TO warning")
        # Asked for by ourselves: an answer before the disk has it would be no promise.
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit TO on")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(connection: Connection, address: StoreAddress, may_make: bool) -> tuple[int, str] | None:
    """Return schema and id of the store there; where there is none, make it, or return None."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [OPENING_LOCK])
        found = connection.execute("SELECT to_regclass('head') IS NOT NULL").fetchone()
        if found == (True,):
            row = connection.execute("SELECT schema, id FROM head").fetchone()
            if row is not None and row[0] > SCHEMA:
                return int(row[0]), str(row[1])
        else:
            row = None
            if not may_make:
                return None
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(address.name)))
            connection.execute(TABLES)
        if row is None:
            if not may_make:
                return None
            row = (SCHEMA, uuid.uuid4().hex)
            connection.execute("INSERT INTO head (schema, id, events, version) VALUES (%s, %s, 0, 0)", row)
        connection.execute(COUNTS)
        connection.execute(FUNCTION)
        connection.execute(
            "DELETE FROM audit WHERE number <= (SELECT events FROM head) - %s::bigint", [AUDIT_LINES_MAX]
        )
        return int(row[0]), str(row[1])


PASSWORD_FIX: Final = "give the right password in a file (--store-password-file) or COLANE_STORE_PASSWORD"  # noqa: S105
STOPPED_FIX: Final = "its server was stopped: once it is up again this goes on"
FIXES: Final = (
    (errors.AdminShutdown, STOPPED_FIX),
    (errors.CrashShutdown, STOPPED_FIX),
    (errors.ReadOnlySqlTransaction, "it is a standby, or set to read only: name the one that takes writes"),
    (errors.DiskFull, "make room on its disk"),
    (errors.InsufficientPrivilege, "give its user the right: GRANT CREATE ON DATABASE, or own the schema"),
    (errors.InvalidPassword, PASSWORD_FIX),
)
"""What a person can do, by the kind of error."""

OTHER_FIXES: Final = (
    ("password authentication failed", PASSWORD_FIX),
    ("no password supplied", PASSWORD_FIX),
    ("peer authentication failed", "name the database's user: postgres://USER@HOST/DATABASE"),
    ('database "', "make it: createdb, or name another: postgres://USER@HOST/DATABASE"),
    ('role "', "name a user that it has: postgres://USER@HOST/DATABASE"),
    ("starting up", "wait a moment"),
    ("shutting down", "wait a moment"),
    ("in recovery mode", "wait a moment"),
    ("not yet accepting connections", "wait a moment"),
    ("too many clients", "raise its max_connections, or end other clients"),
    ("connection refused", "is it running, and is its address right?"),
    ("no such file", "is it running, and is its address right?"),
    ("failed to resolve", "is its address right?"),
    ("server closed the connection", "whether it was done is not known"),
    ("consuming input failed", "whether it was done is not known"),
    ("connection is lost", "whether it was done is not known"),
)
"""The same by what is said before there is a connection, where errors have no kinds."""


def said(error: Exception) -> str:
    """Return what a server, or the way to it, says, in one line with the fix."""
    text = " ".join(str(error).split()).rstrip(".")
    fixes = [fix for kind, fix in FIXES if isinstance(error, kind)]
    fixes += [fix for words, fix in OTHER_FIXES if words in text.lower()]
    return f"{text}; {fixes[0]}" if fixes else text
