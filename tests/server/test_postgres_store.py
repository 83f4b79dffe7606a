"""What only a store in Postgres can suffer."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import psycopg
import pytest

from colane.server.store import postgres_store
from colane.server.store import store as names
from colane.server.store.network import SCHEMA
from colane.server.store.opening import open_store
from colane.server.store.postgres_store import PostgresStore
from colane.server.store.store import (
    AuditEntry,
    Durability,
    Put,
    StoreError,
    StoreWriter,
    Transaction,
    Unreadable,
    UnreadableError,
)
from colane.settings.store_address import StoreAddress, store_address
from tests.disks import disk_of_a_megabyte
from tests.server.harness import SLEEP
from tests.server.postgres_server import PostgresServer, opened, postgres_server
from tests.server.processes import scheduler

JOBS = names.SUBMITTED_JOBS
LINE = AuditEntry(1.0, "job", {"x": "ü"})
NAMES = count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def name() -> str:
    """Of a cluster that is not there yet."""
    return f"cluster-{next(NAMES)}"


def put(key: str, value: object, collection: str = JOBS) -> Put:
    return Put(collection, key, {"value": value})


def test_everything_is_there_after_the_server_was_killed(server: PostgresServer, name: str) -> None:
    with opened(server, name) as store:
        store.commit(Transaction(puts=[put("a", 1)], audit=[LINE]), StoreWriter(0, version=0))
        assert store.version() == 1
        server.kill()
        with pytest.raises(StoreError, match="could not be written: "):
            store.commit(Transaction(puts=[put("b", 1)]))
        with pytest.raises(StoreError, match=r"could not be written: .*is it running, and is its address right\?"):
            store.commit(Transaction(puts=[put("b", 1)]))
        server.start()
        assert store.get(JOBS, "a") == {"value": 1}
        store.commit(Transaction(puts=[put("b", 2)]), StoreWriter(0, 1, 1))
    with opened(server, name) as store:
        assert list(store.read_all(JOBS)) == [("a", {"value": 1}), ("b", {"value": 2})]
        assert (store.audit(0, 10)[0].body, store.version()) == ({"x": "ü"}, 2)


def test_of_puts_of_one_key_the_last_one_counts(server: PostgresServer, name: str) -> None:
    with opened(server, name) as store:
        store.commit(Transaction(puts=[put("a", 1), put("a", 2)]))
        assert list(store.read_all(JOBS)) == [("a", {"value": 2})]


def test_a_record_that_was_altered_is_never_believed(server: PostgresServer, name: str) -> None:
    with opened(server, name) as store, server.raw(options=f"-c search_path={name}") as raw:
        store.commit(Transaction(puts=[put("a", 1), put("b", 2)], audit=[LINE]))
        raw.execute("UPDATE documents SET body = replace(body, '1', '2') WHERE key = 'a'")
        raw.execute("UPDATE audit SET body = '[1.0, \"job\", {}]'")
        assert list(store.read_all(JOBS)) == [("b", {"value": 2})]
        assert store.unreadable() == [Unreadable(JOBS, "a", "it is not as it was written")]
        with pytest.raises(UnreadableError, match="submitted_jobs a cannot be read"):
            store.get(JOBS, "a")
        assert [line.kind for line in store.audit(0, 5)] == ["unreadable"]


@pytest.mark.parametrize(
    "query", ['DROP SCHEMA "{}" CASCADE', 'DELETE FROM "{}".head', "UPDATE \"{}\".head SET id = 'another'"]
)
def test_one_that_was_emptied_is_not_written_to(server: PostgresServer, name: str, query: str, tmp_path: Path) -> None:
    store = open_store(server.address(name), tmp_path)
    with server.raw() as raw:
        raw.execute(query.format(name))
    write = partial(store.commit, Transaction(puts=[put("b", 1)]))
    uses: list[Callable[[], object]] = [write, partial(store.get, JOBS, "a"), store.version, store.last_audit_number]
    for use in uses:
        with pytest.raises(StoreError, match="was emptied or replaced by another while the scheduler runs"):
            use()
    store.close()
    with pytest.raises(StoreError, match=r"is empty, but there was one here|is not the one that was here before"):
        open_store(server.address(name), tmp_path)


class TestDurability:
    def test_an_answer_waits_for_the_disk_whatever_is_set(self, server: PostgresServer, name: str) -> None:
        with server.raw() as raw:
            raw.execute("ALTER ROLE postgres SET synchronous_commit TO off")
        try:
            with opened(server, name) as store:
                store.commit(Transaction(puts=[put("a", 1)]))
                assert store.durability() == Durability("postgres")
                with store._writer.connected() as connection:
                    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        finally:
            with server.raw() as raw:
                raw.execute("ALTER ROLE postgres RESET synchronous_commit")

    def test_a_server_that_does_not_write_to_its_disk_is_named(self, server: PostgresServer, name: str) -> None:
        server.stop()
        server.start("-c", "fsync=off", "-c", "full_page_writes=off")
        try:
            with opened(server, name) as store:
                risks = store.durability().risks
        finally:
            server.stop()
            server.start()
        assert [risk.partition(":")[0] for risk in risks] == ["fsync is off", "full_page_writes is off"]


class TestBadInput:
    def test_no_server(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(StoreError, match=r"could not be opened: .*refused.*; is it running") as met:
            PostgresStore(store_address(f"postgres://127.0.0.1:{port}/x"))
        assert "\n" not in str(met.value)

    def test_no_such_database_and_no_such_user(self, server: PostgresServer) -> None:
        with pytest.raises(StoreError, match="does not exist; make it: createdb, or name another"):
            PostgresStore(server.address()._replace(database="none"))
        with pytest.raises(StoreError, match="does not exist; name a user that it has"):
            PostgresStore(server.address(user="unheard"))

    def test_a_wrong_password(self, server: PostgresServer, tmp_path: Path, name: str) -> None:
        with server.raw() as raw:
            raw.execute("CREATE ROLE ann LOGIN PASSWORD 'open sesame'")
            raw.execute("GRANT CREATE ON DATABASE postgres TO ann")
        rules = server.folder / "data" / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"local all ann scram-sha-256\n{before}")
        try:
            with server.raw() as raw:
                raw.execute("SELECT pg_reload_conf()")
            address, file = server.address(name, "ann"), tmp_path / "password"
            wait_until(lambda: refused(address))
            for password in ("wrong", None):
                if password:
                    file.write_text(password)
                with pytest.raises(StoreError, match=r"give the right password in a file \(--store-password-file\)"):
                    open_store(address, tmp_path, file if password else None)
            file.write_text("open sesame\n")
            open_store(address, tmp_path, file).close()
        finally:
            rules.write_text(before)
            with server.raw() as raw:
                raw.execute("SELECT pg_reload_conf()")

    def test_a_user_without_rights(self, server: PostgresServer) -> None:
        with server.raw() as raw:
            raw.execute("CREATE ROLE bob LOGIN")
        with pytest.raises(StoreError, match="give its user the right: GRANT CREATE ON DATABASE"):
            PostgresStore(server.address("of-bob", "bob"))

    def test_a_newer_colane(self, server: PostgresServer, name: str) -> None:
        with opened(server, name), server.raw(options=f"-c search_path={name}") as raw:
            raw.execute("UPDATE head SET schema = %s", [SCHEMA + 1])
        with pytest.raises(StoreError, match=rf"written by a newer Colane \(schema {SCHEMA + 1}, this one knows"):
            PostgresStore(server.address(name))

    def test_one_that_takes_no_writes(self, server: PostgresServer, name: str) -> None:
        with opened(server, name) as store:
            with store._writer.connected() as connection:
                connection.execute("SET default_transaction_read_only TO on")
            with pytest.raises(StoreError, match="it is a standby, or set to read only: name the one"):
                store.commit(Transaction(puts=[put("a", 1)]))
            assert store.count(JOBS) == 0

    def test_one_in_recovery(self, server: PostgresServer, name: str) -> None:
        """A standby of Postgres that nobody has promoted: neither one that is open nor one that starts writes to it."""
        standby = server.folder / "data" / "standby.signal"
        fix = "it is a standby, or set to read only: name the one that takes writes"
        with opened(server, name) as store:
            store.commit(Transaction(puts=[put("a", 1)]), StoreWriter(0, 0, 0))
            server.stop()
            standby.touch()
            server.start()
            try:
                with pytest.raises(StoreError, match="its server was stopped: once it is up again"):
                    store.commit(Transaction(puts=[put("b", 1)]), StoreWriter(0, 0, 1))
                with pytest.raises(StoreError, match=fix) as met:
                    store.commit(Transaction(puts=[put("b", 1)]), StoreWriter(0, 0, 1))
                assert "\n" not in str(met.value)
                assert (store.get(JOBS, "a"), store.version()) == ({"value": 1}, 1)
                with pytest.raises(StoreError, match=fix):
                    PostgresStore(server.address("not-there-yet"))
            finally:
                server.stop()
                standby.unlink()
                server.start()
            with pytest.raises(StoreError, match="its server was stopped"):
                store.commit(Transaction(puts=[put("b", 1)]), StoreWriter(0, 0, 1))
            store.commit(Transaction(puts=[put("b", 1)]), StoreWriter(0, 0, 1))
            assert (store.count(JOBS), store.version()) == (2, 2)

    def test_a_server_that_hangs_is_given_up(
        self, server: PostgresServer, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(server, name) as store, server.raw() as raw:
            monkeypatch.setattr(postgres_store, "ANSWER_MAX_S", 0.2)
            with raw.transaction():
                raw.execute(f'SELECT FROM "{name}".head FOR UPDATE')
                with pytest.raises(StoreError, match=r"could not be written: .*whether it was done is not known"):
                    store.commit(Transaction(puts=[put("a", 1)]))
            monkeypatch.undo()
            assert store.version() == 0

    def test_a_full_disk(self, server: PostgresServer, name: str) -> None:
        with disk_of_a_megabyte(server.folder / "small") as place:
            shutil.chown(place, "postgres", "postgres")
            with server.raw() as raw:
                raw.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
                raw.execute("ALTER ROLE postgres SET default_tablespace TO small")
            many = Transaction(puts=[put(str(n), os.urandom(500).hex()) for n in range(2000)])
            with opened(server, name) as store:
                with pytest.raises(StoreError, match=r"No space left on device.*; make room on its disk"):
                    store.commit(many)
                assert (store.count(JOBS), store.version()) == (0, 0)
                store.commit(Transaction(puts=[put("a", 1)]))
            with server.raw() as raw:
                raw.execute(f'DROP SCHEMA "{name}" CASCADE')
                raw.execute("ALTER ROLE postgres RESET default_tablespace")
                raw.execute("DROP TABLESPACE small")


def refused(address: StoreAddress) -> bool:
    try:
        psycopg.connect(host=address.path, user=address.user, dbname=address.database).close()
    except psycopg.OperationalError:
        return True
    return False


def wait_until(look: Callable[[], bool]) -> None:
    given_up = threading.Event()
    timer = threading.Timer(60.0, given_up.set)
    timer.start()
    while not look():
        assert not given_up.is_set()
    timer.cancel()


def test_two_that_open_a_new_store_at_once(server: PostgresServer, name: str) -> None:
    ids: list[str] = []

    def open_one() -> None:
        with opened(server, name) as store:
            ids.append(store.id)

    threads = [threading.Thread(target=open_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 4
    assert len(set(ids)) == 1


WRITER = """
import sys
from colane.server.store.postgres_store import PostgresStore
from colane.server.store.store import AuditEntry, Delete, Put, StoreWriter, Transaction, job_key
from colane.settings.store_address import store_address

store = PostgresStore(store_address(sys.argv[1]))
for number in range(1_000_000):
    puts = [Put("submitted_jobs", job_key(number), {"n": number}), Put("launch_specs", job_key(number), {})]
    deletes = [Delete("submitted_jobs", job_key(number - 10))]
    store.commit(Transaction(puts, deletes, [AuditEntry(0.0, "job", {"n": number})]), StoreWriter(0, number, number))
    print(number, flush=True)
"""


@pytest.mark.live
@pytest.mark.parametrize("who", ["writer", "server"])
def test_nothing_acknowledged_is_lost_when_one_of_both_is_killed(server: PostgresServer, name: str, who: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), server.url(name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(40):
            assert select.select([writer.stdout], [], [], 60)[0]
            writer.stdout.readline()
        if who == "server":
            server.kill()
        else:
            writer.send_signal(signal.SIGKILL)
        last = max([39, *map(int, writer.stdout.read().split("\n")[:-1])])
    if who == "server":
        server.start()
    with opened(server, name) as store:
        queued = [body["n"] for _, body in store.read_all(JOBS)]
        stored = max(queued)
        assert stored in {last, last + 1}
        assert queued == list(range(max(0, stored - 9), stored + 1))
        assert store.count("launch_specs") == store.last_audit_number() == store.version() == stored + 1


@pytest.mark.live
def test_a_scheduler_that_was_killed_goes_on_from_what_is_there(
    server: PostgresServer, name: str, tmp_path: Path
) -> None:
    before = (
        "from colane.settings.store_address import store_address\n"
        "import colane.server.config as config, functools\n"
        f"config.ServerConfig = functools.partial(config.ServerConfig, store=store_address({server.url(name)!r}))\n"
    )
    with scheduler(tmp_path, before=before) as first:
        key = {"Idempotency-Key": "k"}
        assert first.http.post("/job", json=SLEEP, headers=key).json() == {"id": 1}
        first.process.kill()
        first.process.wait()
    with scheduler(tmp_path, before=before) as second:
        assert second.http.post("/job", json=SLEEP, headers=key).json() == {"id": 1}
        assert second.http.post("/job", json=SLEEP).json() == {"id": 2}
        health = second.http.get("/health").json()
        assert (health["epoch"], health["store"]) == (2, {"kind": "postgres", "risks": [], "unchecked": []})
