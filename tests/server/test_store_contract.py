"""What every store promises, run against each of them; then what only a file can suffer."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from colane.server.store import store as names
from colane.server.store.network import NetworkStore
from colane.server.store.postgres_store import PostgresStore
from colane.server.store.redis_store import RedisStore
from colane.server.store.sqlite import MIGRATIONS, SqliteStore
from colane.server.store.store import (
    AuditEntry,
    ConflictError,
    Delete,
    Put,
    Store,
    StoreError,
    StoreWriter,
    SupersededError,
    Transaction,
    job_key,
)
from tests.memory_store import MemoryStore
from tests.server.postgres_server import PostgresServer, postgres_server
from tests.server.redis_server import RedisServer, redis_server

JOBS = names.SUBMITTED_JOBS
NONE_CAME = 65534


NAMES = count()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "redis":
        made = RedisStore(request.getfixturevalue("redis").address(f"cluster-{next(NAMES)}"))
    elif request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("postgres").address(f"cluster-{next(NAMES)}"))
    else:
        made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "colane.db")
    yield made
    made.close()


def put(key: str, value: object, collection: str = JOBS) -> Put:
    return Put(collection, key, {"value": value})


class TestDocuments:
    def test_put_get_replace_delete(self, store: Store) -> None:
        store.commit(Transaction(puts=[put("a", 1)]))
        store.commit(Transaction(puts=[put("a", {"deep": [1, "ü", None]})]))
        assert store.get(JOBS, "a") == {"value": {"deep": [1, "ü", None]}}
        store.commit(Transaction(deletes=[Delete(JOBS, "a"), Delete(JOBS, "never there")]))
        assert store.get(JOBS, "a") is None

    @pytest.mark.parametrize("collection", [JOBS, names.FINISHED_JOBS])
    def test_whatever_a_document_and_a_line_hold_comes_back(self, store: Store, collection: str) -> None:
        deep: object = 1
        for _ in range(300):
            deep = [deep]
        texts = ["ü 漢 \U0001f600", "\ud800 alone", '\x00\x1f\x7f\u2028"\\/']
        values = [*texts, 2**70, -0.0, 1e22, 5e-324, math.inf, deep]
        for value in values:
            body = {"value": value, f"{value!s:.9}": [value]}
            store.commit(Transaction([Put(collection, "a", body)], audit=[AuditEntry(0.1, "job", body)]))
            assert store.get(collection, "a") == body
            assert store.audit(store.last_audit_number() - 1, 1)[0][1:] == (0.1, "job", body)

    def test_collections_are_apart(self, store: Store) -> None:
        store.commit(Transaction(puts=[put("a", 1), put("a", 2, names.NODES)]))
        store.commit(Transaction(clears=[JOBS]))
        assert store.get(JOBS, "a") is None
        assert store.get(names.NODES, "a") == {"value": 2}

    def test_clears_then_deletes_then_puts(self, store: Store) -> None:
        store.commit(Transaction(puts=[put("a", 1), put("b", 1)]))
        store.commit(Transaction(puts=[put("a", 2)], deletes=[Delete(JOBS, "a")], clears=[JOBS]))
        assert list(store.read_all(JOBS)) == [("a", {"value": 2})]

    def test_read_all_is_ordered_by_key_and_jobs_by_id(self, store: Store) -> None:
        ids = [1000, 9, 10, 2**53]
        store.commit(Transaction(puts=[put(job_key(job_id), job_id) for job_id in ids]))
        assert [body["value"] for _, body in store.read_all(JOBS)] == sorted(ids)
        assert store.count(JOBS) == 4

    def test_what_is_remembered_is_decoded_once_and_read_as_it_is_now(self, store: Store) -> None:
        store.remember(JOBS)
        store.commit(Transaction([put("1", 1), put("2", 1), put("3", 1)]))
        before = dict(store.read_all(JOBS))
        store.commit(Transaction([put("2", 2), put("4", 1)], deletes=[Delete(JOBS, "3")]))
        after = dict(store.read_all(JOBS))
        assert {key: body["value"] for key, body in after.items()} == {"1": 1, "2": 2, "4": 1}
        assert (after["1"] is before["1"]) == isinstance(store, NetworkStore)
        store.remember()
        again = dict(store.read_all(JOBS))
        assert (again, again["1"] is after["1"]) == (after, False)

    def test_pages_cover_everything_once(self, store: Store) -> None:
        store.commit(Transaction(puts=[put(job_key(number), number) for number in range(10)]))
        seen, after = [], ""
        while page := store.page(JOBS, after, 3):
            seen += [body["value"] for _, body in page]
            after = page[-1][0]
        assert seen == list(range(10))

    def test_pages_from_the_end_cover_everything_once(self, store: Store) -> None:
        store.commit(Transaction(puts=[put(job_key(number), number) for number in range(10)]))
        store.commit(Transaction(puts=[put(job_key(99), 99, names.FINISHED_JOBS)]))
        seen, before = [], None
        while page := store.page_back(JOBS, before, 3):
            seen += [body["value"] for _, body in page]
            before = page[-1][0]
        assert seen == list(range(9, -1, -1))

    def test_pages_from_the_end_hold_only_what_contains_the_texts(self, store: Store) -> None:
        values = [
            {"user": "ann", "label": 'say "hi" %_'},
            {"user": "bob", "label": "ann"},
            {"user": "ann", "label": ""},
            {"user": "bö", "label": ""},
        ]
        ended = names.FINISHED_JOBS
        store.commit(Transaction(puts=[put(job_key(number), value, ended) for number, value in enumerate(values)]))
        by_ann, quoted = '"user": "ann"', '"label": "say \\"hi\\" %_"'
        assert [int(key) for key, _ in store.page_back(ended, None, 5, [by_ann])] == [2, 0]
        assert [int(key) for key, _ in store.page_back(ended, job_key(2), 5, [by_ann])] == [0]
        assert [int(key) for key, _ in store.page_back(ended, None, 5, [by_ann, quoted])] == [0]
        assert [int(key) for key, _ in store.page_back(ended, None, 1, [by_ann])] == [2]
        assert [int(key) for key, _ in store.page_back(ended, None, 5, [json.dumps("bö")])] == [3]

    def test_what_is_not_json_is_refused_whole(self, store: Store) -> None:
        with pytest.raises(TypeError):
            store.commit(Transaction(puts=[put("a", 1), put("b", object())]))
        assert store.count(JOBS) == 0

    def test_an_iteration_is_not_disturbed_by_writing(self, store: Store) -> None:
        store.commit(Transaction(puts=[put("a", 1), put("b", 2)]))
        rows = store.read_all(JOBS)
        first = next(rows)
        store.commit(Transaction(clears=[JOBS]))
        assert [first, *rows] == [("a", {"value": 1}), ("b", {"value": 2})]


class TestAudit:
    def test_lines_are_numbered_in_order(self, store: Store) -> None:
        assert store.last_audit_number() == 0
        last = store.commit(Transaction(audit=[AuditEntry(1.0, "job", {"n": n}) for n in range(3)]))
        assert last == store.last_audit_number() == 3
        assert store.commit(Transaction(puts=[put("a", 1)])) == 3
        lines = store.audit(after=1, limit=10)
        assert [(line.number, line.body["n"]) for line in lines] == [(2, 1), (3, 2)]
        assert lines[0].at_s == 1.0
        assert lines[0].kind == "job"

    def test_reading_is_limited(self, store: Store) -> None:
        store.commit(Transaction(audit=[AuditEntry(1.0, "job", {}) for _ in range(5)]))
        assert [line.number for line in store.audit(after=0, limit=2)] == [1, 2]
        assert store.audit(after=5, limit=2) == []


def test_writers_and_readers_in_many_threads(store: Store) -> None:
    def write(worker: int) -> None:
        for number in range(10):
            store.commit(Transaction(puts=[put(f"{worker}-{number}", 1)], audit=[AuditEntry(0.0, "job", {})]))
            assert store.get(JOBS, f"{worker}-{number}") is not None

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count(JOBS) == store.last_audit_number() == 40


class TestWriter:
    def drawn(self, store: Store, number: int, writer: StoreWriter) -> None:
        store.commit(Transaction(puts=[put(job_key(number), number, names.EPOCHS)]), writer)

    def test_only_the_newest_epoch_writes(self, store: Store) -> None:
        self.drawn(store, 1, StoreWriter(0))
        store.commit(Transaction(puts=[put("a", 1)]), StoreWriter(1))
        self.drawn(store, 2, StoreWriter(1))
        for writer in (StoreWriter(0), StoreWriter(1), StoreWriter(3)):
            with pytest.raises(SupersededError, match="another scheduler has started on this store"):
                store.commit(Transaction(puts=[put("a", 2)], audit=[AuditEntry(1.0, "job", {})]), writer)
        assert store.get(JOBS, "a") == {"value": 1}
        assert store.last_audit_number() == 0
        store.commit(Transaction(puts=[put("a", 3)]), StoreWriter(2))
        assert store.get(JOBS, "a") == {"value": 3}

    def test_of_two_that_draw_the_same_one_one_has_it(self, store: Store) -> None:
        self.drawn(store, 1, StoreWriter(0))
        with pytest.raises(SupersededError):
            self.drawn(store, 1, StoreWriter(0))

    def test_a_writer_that_does_not_know_the_newest_line_reads_anew(self, store: Store) -> None:
        self.drawn(store, 1, StoreWriter(0, events=0))
        line = Transaction(audit=[AuditEntry(1.0, "job", {})])
        assert store.commit(line, StoreWriter(1, events=0)) == 1
        with pytest.raises(ConflictError, match="the store is at event 1, not 0"):
            store.commit(line, StoreWriter(1, events=0))
        assert store.commit(line, StoreWriter(1)) == 2
        assert store.commit(line, StoreWriter(1, events=2)) == 3

    def test_a_commit_that_names_the_version_makes_all_others_that_name_it_fail(self, store: Store) -> None:
        self.drawn(store, 1, StoreWriter(0))
        assert store.version() == 0, "a commit that names none changes none"
        store.commit(Transaction(puts=[put("a", 1)]), StoreWriter(1, version=0))
        assert store.version() == 1
        for version in (0, 2):
            with pytest.raises(ConflictError, match=f"the store is at version 1, not {version}"):
                store.commit(Transaction(puts=[put("a", 2)], clears=[JOBS]), StoreWriter(1, version=version))
        assert (store.get(JOBS, "a"), store.version()) == ({"value": 1}, 1)
        store.commit(Transaction(puts=[put("a", 2)]), StoreWriter(1))
        store.commit(Transaction(puts=[put("a", 3)]), StoreWriter(1, version=1))
        assert (store.get(JOBS, "a"), store.version()) == ({"value": 3}, 2)


def test_an_empty_transaction_is_false() -> None:
    assert not Transaction()
    assert Transaction(audit=[AuditEntry(0.0, "job", {})])


class TestMemory:
    def test_a_failing_store_changes_nothing(self) -> None:
        memory = MemoryStore()
        memory.failure = "no space"
        with pytest.raises(StoreError, match="no space"):
            memory.commit(Transaction(puts=[put("a", 1)], audit=[AuditEntry(0.0, "job", {})]))
        assert (memory.count(JOBS), memory.last_audit_number()) == (0, 0)


class TestSqliteFile:
    def test_everything_is_there_after_reopening(self, tmp_path: Path) -> None:
        first = SqliteStore(tmp_path / "colane.db")
        first.commit(Transaction(puts=[put("a", 1)], audit=[AuditEntry(1.0, "job", {"x": 1})]))
        first.close()
        second = SqliteStore(tmp_path / "colane.db")
        assert second.get(JOBS, "a") == {"value": 1}
        assert second.audit(0, 10)[0].body == {"x": 1}
        second.close()

    def test_the_writing_connection_waits_for_the_disk(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "colane.db")
        full = 2
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (full,)
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        store.close()

    def test_records_of_one_or_two_kilobytes_lie_close_together(self, tmp_path: Path) -> None:
        store, text = SqliteStore(tmp_path / "colane.db"), "x" * 1_100
        store.commit(Transaction([put(job_key(number), text) for number in range(400)]))
        store.close()
        assert (tmp_path / "colane.db").stat().st_size < 400 * len(text) * 1.5

    def test_only_its_owner_reads_it(self, tmp_path: Path) -> None:
        SqliteStore(tmp_path / "colane.db").close()
        assert stat.S_IMODE((tmp_path / "colane.db").stat().st_mode) == 0o600

    def test_a_newer_schema_is_refused(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "colane.db") as raw:
            raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        raw.close()
        with pytest.raises(StoreError, match="newer Colane"):
            SqliteStore(tmp_path / "colane.db")

    def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "colane.db").write_text("these are not the bytes you are looking for" * 100)
        with pytest.raises(StoreError, match=r"colane\.db could not be opened: file is not a database"):
            SqliteStore(tmp_path / "colane.db")

    def test_what_was_deleted_can_be_read_in_no_file_once_it_is_scrubbed(self, tmp_path: Path) -> None:
        def files_with(secret: bytes) -> list[str]:
            return sorted(path.name for path in tmp_path.iterdir() if secret in path.read_bytes())

        store = SqliteStore(tmp_path / "colane.db")
        for number in range(40):  # some of them over several pages
            text = f"secret-{number}-" * (1 + 200 * (number % 3))
            store.commit(Transaction(puts=[put(str(number), text, names.LAUNCH_SPECS)]))
        store.scrub()
        assert files_with(b"secret-7-") == ["colane.db"]
        store.commit(Transaction(deletes=[Delete(names.LAUNCH_SPECS, str(number)) for number in range(39)]))
        assert files_with(b"secret-7-") != []
        store.scrub()
        assert files_with(b"secret-7-") == []
        assert files_with(b"secret-39-") == ["colane.db"]
        store.close()

    def test_a_locked_file_refuses_the_write_and_recovers(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "colane.db", busy_timeout_s=0.01)
        with sqlite3.connect(tmp_path / "colane.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="could not be written: database is locked"):
                store.commit(Transaction(puts=[put("a", 1)]))
            other.execute("ROLLBACK")
        other.close()
        assert store.get(JOBS, "a") is None
        store.commit(Transaction(puts=[put("a", 2)]))
        assert store.get(JOBS, "a") == {"value": 2}
        store.close()

    def test_a_full_disk_refuses_the_write_and_leaves_nothing_half_written(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "colane.db")
        pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="could not be written: database or disk is full"):
            store.commit(Transaction(puts=[put(f"{n}", "x" * 1000) for n in range(100)]))
        assert store.count(JOBS) == 0
        store._writer.execute(f"PRAGMA max_page_count = {pages + 1000}")
        store.commit(Transaction(puts=[put("a", 1)]))
        assert store.count(JOBS) == 1
        store.close()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user who may not write")
    def test_a_read_only_file_is_refused(self) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            SqliteStore(folder / "colane.db").close()
            folder.chmod(0o755)
            (folder / "colane.db").chmod(0o444)
            done = open_as_nobody(folder / "colane.db")
        finally:
            shutil.rmtree(folder)
        assert done == "StoreError: could not be opened: Permission denied; let this user read and write it"


def open_as_nobody(path: Path) -> str:
    """Open a store in a child that has given up root after its imports, and return what it met."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(NONE_CAME)
        try:
            SqliteStore(path)
            answer = "opened"
        except StoreError as error:
            answer = "StoreError: " + str(error).removeprefix(f"the store {path} ").split(": '")[0]
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answered:
        return answered.read()


WRITER = """
import sys
from pathlib import Path
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import AuditEntry, Delete, Put, Transaction, job_key

store = SqliteStore(Path(sys.argv[1]))
for number in range(1_000_000):
    puts = [Put("submitted_jobs", job_key(number), {"n": number}), Put("launch_specs", job_key(number), {})]
    deletes = [Delete("submitted_jobs", job_key(number - 10))]
    store.commit(Transaction(puts, deletes, [AuditEntry(0.0, "job", {"n": number})]))
    print(number, flush=True)
"""


@pytest.mark.live
@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path, acknowledged: int) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "colane.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(acknowledged):
            assert select.select([writer.stdout], [], [], 60)[0]
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        last = max([acknowledged - 1, *map(int, writer.stdout.read().split("\n")[:-1])])
    store = SqliteStore(tmp_path / "colane.db")
    queued = [body["n"] for _, body in store.read_all(JOBS)]
    stored = max(queued)
    # One transaction may have been durable without its acknowledgement having left; none is half there.
    assert stored in {last, last + 1}
    assert queued == list(range(max(0, stored - 9), stored + 1))
    assert store.count(names.LAUNCH_SPECS) == store.last_audit_number() == stored + 1
    store.close()
