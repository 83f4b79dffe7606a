"""What only a store in Redis can suffer."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import hiredis
import pytest

from colane.server.store import redis_functions
from colane.server.store import store as names
from colane.server.store.network import SCHEMA
from colane.server.store.opening import MADE_FILE, PASSWORD_VARIABLE, open_store
from colane.server.store.redis_store import LOOKED_AT_ONCE, WORDS_AT_ONCE, InPieces, RedisStore
from colane.server.store.store import (
    AuditEntry,
    Durability,
    Put,
    StoreError,
    StoreWriter,
    Transaction,
    Unreadable,
    UnreadableError,
    job_key,
)
from colane.settings.store_address import store_address
from tests.disks import disk_of_a_megabyte
from tests.server.harness import DEADLINE_S, SLEEP, world
from tests.server.processes import scheduler
from tests.server.redis_server import RedisServer, opened, redis_server

JOBS = names.SUBMITTED_JOBS
LINE = AuditEntry(1.0, "job", {"x": "ü"})


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


def at(server: RedisServer) -> str:
    """What lets a scheduler's process have its store there."""
    return (
        "from colane.settings.store_address import store_address\n"
        "import colane.server.config as config, functools\n"
        f"config.ServerConfig = functools.partial(config.ServerConfig, store=store_address({server.url()!r}))\n"
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def until(look: Callable[[], bool]) -> None:
    """Look until it is so."""
    end_s = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < end_s


def put(key: str, value: object, collection: str = JOBS) -> Put:
    return Put(collection, key, {"value": value})


def test_everything_is_there_after_the_server_was_killed(server: RedisServer) -> None:
    with opened(server) as store:
        store.commit(Transaction(puts=[put("a", 1)], audit=[LINE]), StoreWriter(0, version=0))
        server.kill()
        with pytest.raises(StoreError, match=r"could not be written: .*is it running, and is its address right\?"):
            store.commit(Transaction(puts=[put("b", 1)]))
        server.start()
        assert store.get(JOBS, "a") == {"value": 1}
        store.commit(Transaction(puts=[put("b", 2)]), StoreWriter(0, 1, 1))
    with opened(server) as store:
        assert list(store.read_all(JOBS)) == [("a", {"value": 1}), ("b", {"value": 2})]
        assert (store.audit(0, 10)[0].body, store.version()) == ({"x": "ü"}, 2)


def test_a_full_disk_keeps_what_was_acknowledged_and_nothing_by_half(server: RedisServer) -> None:
    """Redis ends where its file cannot be written: an answer would be no promise."""
    server.kill()
    with disk_of_a_megabyte(server.folder / "disk") as place, ExitStack() as stack:
        stack.callback(server.kill)
        server.start("--dir", str(place))
        with opened(server) as store:
            store.commit(Transaction(puts=[put("a", 1)], audit=[LINE]), StoreWriter(0, 0, 0))
            many = Transaction(puts=[put(str(n), "x" * 1000) for n in range(2000)], audit=[LINE])
            with pytest.raises(StoreError, match=r"could not be written: .*is it running"):
                store.commit(many, StoreWriter(0, 1, 1))
            assert "Can't recover from AOF write error" in (server.folder / "log").read_text()
            server.kill()
            subprocess.run(["mount", "-o", "remount,size=16m", str(place)], check=True)
            server.start("--dir", str(place))
            assert (list(store.read_all(JOBS)), store.version()) == ([("a", {"value": 1})], 1)
            store.commit(many, StoreWriter(0, 1, 1))
            assert (store.count(JOBS), store.version()) == (2001, 2)


@pytest.mark.parametrize("count", [1, 500, 501, 1000, 1234])
def test_a_long_command_is_the_same_in_pieces_of_which_none_is_long(count: int) -> None:
    words: Any = ["FCALL", *(f"-\r\n{n}" * (n % 7) for n in range(count - 1))]
    pieces = InPieces().pack(*words)
    assert b"".join(pieces) == hiredis.pack_command(tuple(words))
    assert max(piece.count(b"$") for piece in pieces) <= WORDS_AT_ONCE


def test_functions_that_the_server_has_lost_are_loaded_anew(server: RedisServer) -> None:
    with opened(server) as store, server.raw() as raw:
        raw.function_flush()
        store.commit(Transaction(puts=[put("a", 1)]))
        raw.function_delete(redis_functions.LIBRARY)
        assert store.page(JOBS, "", 5) == [("a", {"value": 1})]


def test_clusters_of_other_names_are_apart(server: RedisServer) -> None:
    with opened(server, "one") as one, opened(server, "two") as two:
        one.commit(Transaction(puts=[put("a", 1)], audit=[LINE]))
        assert (two.count(JOBS), two.last_audit_number()) == (0, 0)
        assert one.id != two.id


def test_a_page_is_found_among_more_than_are_looked_at_in_one_go(server: RedisServer) -> None:
    with opened(server) as store:
        some = {1, LOOKED_AT_ONCE + 5}
        values = [put(job_key(n), "wanted" if n in some else "other") for n in range(2 * LOOKED_AT_ONCE + 10)]
        store.commit(Transaction(puts=values))
        found = store.page_back(JOBS, None, 3, ['"wanted"'])
        assert [int(key) for key, _ in found] == sorted(some, reverse=True)


def test_a_record_that_was_altered_is_never_believed(server: RedisServer) -> None:
    with opened(server) as store, server.raw() as raw:
        store.commit(Transaction(puts=[put("a", 1), put("b", 2)], audit=[LINE]))
        known = raw.hget("{colane}:submitted_jobs", "a")
        assert isinstance(known, bytes)
        raw.hset("{colane}:submitted_jobs", "a", known.replace(b"1}", b"2}"))
        raw.xadd("{colane}:audit", {"line": b'00000000[1.0, "job", {}]'}, id="2-0")
        assert list(store.read_all(JOBS)) == [("b", {"value": 2})]
        assert store.unreadable() == [Unreadable(JOBS, "a", "it is not as it was written")]
        with pytest.raises(UnreadableError, match="submitted_jobs a cannot be read"):
            store.get(JOBS, "a")
        assert [line.kind for line in store.audit(0, 5)] == ["job", "unreadable"]
        store.commit(Transaction(puts=[put("a", 3)]))
        assert store.get(JOBS, "a") == {"value": 3}


class TestEmptied:
    def test_under_a_store_that_is_open_nothing_is_written(self, server: RedisServer) -> None:
        with opened(server) as store, server.raw() as raw:
            store.commit(Transaction(puts=[put("a", 1)]))
            raw.execute_command("FLUSHALL")
            write = partial(store.commit, Transaction(puts=[put("b", 1)]))
            read = partial(store.get, JOBS, "a")
            uses: list[Callable[[], object]] = [write, read, store.version, store.last_audit_number]
            for use in uses:
                with pytest.raises(StoreError, match="was emptied or replaced by another while the scheduler runs"):
                    use()
            with opened(server), pytest.raises(StoreError, match="was emptied or replaced by another"):
                store.commit(Transaction(puts=[put("b", 1)]))
            assert raw.keys("*submitted*") == []

    def test_by_a_restart_without_its_file(self, server: RedisServer) -> None:
        server.kill()
        server.start("--appendonly", "no")
        with opened(server) as store:
            store.commit(Transaction(puts=[put("a", 1)]))
            server.kill()
            server.start("--appendonly", "no")
            with pytest.raises(StoreError, match="was emptied or replaced by another"):
                store.commit(Transaction(puts=[put("b", 1)]))

    def test_a_scheduler_does_not_start_on_an_empty_one(self, server: RedisServer, tmp_path: Path) -> None:
        open_store(server.address(), tmp_path).close()
        open_store(server.address(), tmp_path).close()
        with server.raw() as raw:
            raw.execute_command("FLUSHALL")
        with pytest.raises(StoreError, match="is empty, but there was one here"):
            open_store(server.address(), tmp_path)
        with opened(server), pytest.raises(StoreError, match="is not the one that was here before"):
            open_store(server.address(), tmp_path)
        (tmp_path / MADE_FILE).write_text("no JSON")
        with pytest.raises(StoreError, match=r"stores\.json cannot be read"):
            open_store(server.address(), tmp_path)

    async def test_a_service_keeps_its_jobs_and_says_so(self, server: RedisServer) -> None:
        with opened(server) as store, server.raw() as raw:
            async with world(store) as w:
                assert await w.submit() == 1
                dump = {key: raw.dump(key) for key in raw.scan_iter()}
                raw.execute_command("FLUSHALL")
                assert (await w.refused("POST", "/job", SLEEP))[0] == 503
                health = (await w.http.get("/health")).json()
                assert health["status"] == "store-unavailable"
                assert "was emptied or replaced" in health["detail"]
                for key, value in dump.items():
                    assert isinstance(value, bytes)
                    raw.restore(key, 0, value)
                assert await w.submit() == 2
                assert [job["id"] for job in await w.good("GET", "/live_jobs")] == [1, 2]


class TestDurability:
    def test_what_keeps_all_has_no_risks(self, server: RedisServer) -> None:
        with opened(server) as store:
            assert store.durability() == Durability("redis")
            assert not str(store.durability())

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("appendonly", "no", "appendonly is no: all is lost at its end; set it to yes"),
            ("appendfsync", "everysec", "appendfsync is everysec: a power cut loses"),
            ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite is yes: a power cut while"),
            ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru: jobs are thrown away"),
        ],
    )
    def test_each_setting_that_loses_is_named(self, server: RedisServer, name: str, value: str, told: str) -> None:
        with server.raw() as raw:
            raw.config_set(name, value)
        with opened(server) as store:
            assert [risk[: len(told)] for risk in store.durability().risks] == [told]

    def test_a_replica_that_need_not_have_it(self, server: RedisServer) -> None:
        with redis_server() as replica, replica.raw() as raw, server.raw() as primary:
            port = free_port()
            primary.config_set("port", port)
            raw.replicaof("127.0.0.1", port)
            until(lambda: primary.info("replication")["connected_slaves"] == 1)
            with opened(server) as store:
                assert "min-replicas-to-write is 0" in str(store.durability())

    def test_what_is_not_told_is_named(self, server: RedisServer) -> None:
        with server.raw() as raw:
            raw.execute_command("ACL", "SETUSER", "ann", "on", ">p", "~*", "+@all", "-config")
        store = RedisStore(server.address()._replace(user="ann"), "p")
        found = store.durability()
        store.close()
        assert found.risks == ()
        assert str(found).startswith("the store's server does not tell appendonly, appendfsync, ")

    async def test_health_says_so(self, server: RedisServer) -> None:
        with server.raw() as raw:
            raw.config_set("appendfsync", "everysec")
        with opened(server) as store:
            async with world(store) as w:
                health = await w.good("GET", "/health")
        assert health["status"] == "degraded"
        assert "appendfsync is everysec" in health["detail"]
        assert health["store"]["kind"] == "redis"
        assert len(health["store"]["risks"]) == 1

    @pytest.mark.live
    def test_the_scheduler_says_so_in_one_line(self, server: RedisServer, tmp_path: Path) -> None:
        with server.raw() as raw:
            raw.config_set("appendfsync", "no")
        with scheduler(tmp_path, before=at(server)) as started:
            started.stop(signal.SIGTERM)
            said = started.errors().splitlines()
        assert len(said) == 1
        assert said[0].startswith("the store may lose what it has acknowledged: appendfsync is no: ")


class TestBadInput:
    def test_no_server(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        wanted = rf"the store redis://127\.0\.0\.1:{port}/0 could not be opened: .*refused.*; is it running"
        with pytest.raises(StoreError, match=wanted):
            open_store(store_address(f"redis://127.0.0.1:{port}"), tmp_path)

    def test_passwords(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with redis_server("--requirepass", "open sesame") as server:
            fix = r"give the right password in a file \(--store-password-file\) or COLANE_STORE_PASSWORD"
            with pytest.raises(StoreError, match=fix):
                open_store(server.address(), tmp_path)
            monkeypatch.setenv(PASSWORD_VARIABLE, "wrong")
            with pytest.raises(StoreError, match=fix) as met:
                open_store(server.address(), tmp_path)
            assert "wrong" not in str(met.value).replace("WRONGPASS", "")
            file = tmp_path / "password"
            with pytest.raises(StoreError, match=r"--store-password-file .*password: cannot be read, or is empty"):
                open_store(server.address(), tmp_path, file)
            file.write_text("open sesame\n")
            open_store(server.address(), tmp_path, file).close()
            monkeypatch.setenv(PASSWORD_VARIABLE, "open sesame")
            open_store(server.address(), tmp_path).close()

    def test_no_such_database(self, server: RedisServer) -> None:
        with pytest.raises(StoreError, match="DB index is out of range; name a database that it has"):
            RedisStore(server.address()._replace(database="99"))

    def test_a_newer_colane(self, server: RedisServer) -> None:
        opened_before = RedisStore(server.address())
        opened_before.close()
        with server.raw() as raw:
            raw.hset("{colane}:head", "schema", SCHEMA + 1)
        with pytest.raises(
            StoreError, match=rf"written by a newer Colane \(schema {SCHEMA + 1}, this one knows {SCHEMA}"
        ):
            RedisStore(server.address())

    def test_a_user_without_rights(self, server: RedisServer) -> None:
        with server.raw() as raw:
            raw.execute_command("ACL", "SETUSER", "ann", "on", ">p", "~x*", "+@all")
        with pytest.raises(StoreError, match=r"let this user call functions and touch the cluster's keys"):
            RedisStore(server.address()._replace(user="ann"), "p")

    def test_a_replica_is_read_only(self, server: RedisServer) -> None:
        with opened(server) as store, server.raw() as raw:
            raw.replicaof("127.0.0.1", 1)
            with pytest.raises(StoreError, match="it is a replica: name the one that takes writes"):
                store.commit(Transaction(puts=[put("a", 1)]))
            raw.replicaof("NO", "ONE")
            store.commit(Transaction(puts=[put("a", 1)]))

    def test_a_full_memory_refuses_the_whole_commit(self, server: RedisServer) -> None:
        with opened(server) as store, server.raw() as raw:
            store.commit(Transaction(puts=[put(str(n), "x" * 1000) for n in range(2000)]))
            raw.config_set("maxmemory", "1mb")
            with pytest.raises(StoreError, match="raise its maxmemory, or remove what is not needed there"):
                store.commit(Transaction(puts=[put("a", 1)]))
            assert store.get(JOBS, "a") is None
            raw.config_set("maxmemory", "0")
            store.commit(Transaction(puts=[put("a", 1)]))

    def test_too_few_replicas(self, server: RedisServer) -> None:
        with opened(server) as store, server.raw() as raw:
            raw.config_set("min-replicas-to-write", 1)
            with pytest.raises(StoreError, match=r"too few of its replicas are connected \(min-replicas-to-write\)"):
                store.commit(Transaction(puts=[put("a", 1)]))
            assert store.count(JOBS) == 0


WRITER = """
import sys
from colane.server.store.redis_store import RedisStore
from colane.server.store.store import AuditEntry, Delete, Put, StoreWriter, Transaction, job_key
from colane.settings.store_address import store_address

store = RedisStore(store_address(sys.argv[1]))
for number in range(1_000_000):
    puts = [Put("submitted_jobs", job_key(number), {"n": number}), Put("launch_specs", job_key(number), {})]
    deletes = [Delete("submitted_jobs", job_key(number - 10))]
    store.commit(Transaction(puts, deletes, [AuditEntry(0.0, "job", {"n": number})]), StoreWriter(0, number, number))
    print(number, flush=True)
"""


@pytest.mark.live
@pytest.mark.parametrize("who", ["writer", "server"])
def test_nothing_acknowledged_is_lost_when_one_of_both_is_killed(server: RedisServer, who: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), server.url()]
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
    with opened(server) as store:
        queued = [body["n"] for _, body in store.read_all(JOBS)]
        stored = max(queued)
        assert stored in {last, last + 1}
        assert queued == list(range(max(0, stored - 9), stored + 1))
        assert store.count("launch_specs") == store.last_audit_number() == store.version() == stored + 1


@pytest.mark.live
def test_a_scheduler_that_was_killed_goes_on_from_what_is_there(server: RedisServer, tmp_path: Path) -> None:
    with scheduler(tmp_path, before=at(server)) as first:
        assert f"store {server.address()}" in first.line
        key = {"Idempotency-Key": "k"}
        assert first.http.post("/job", json=SLEEP, headers=key).json() == {"id": 1}
        first.process.kill()
        first.process.wait()
    assert not (tmp_path / "colane.db").exists()
    with scheduler(tmp_path, before=at(server)) as second:
        assert second.http.post("/job", json=SLEEP, headers=key).json() == {"id": 1}
        assert second.http.post("/job", json=SLEEP).json() == {"id": 2}
        assert second.http.get("/health").json()["epoch"] == 2
