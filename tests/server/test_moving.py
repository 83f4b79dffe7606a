"""Stores that are moved into others of whatever kind, and looked through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from colane.cli.app import run
from colane.server.store.opening import connect, open_store
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import (
    COLLECTIONS,
    COPIED_KEY,
    COPYING_KEY,
    LAUNCH_SPECS,
    META,
    SUBMITTED_JOBS,
    AuditEntry,
    AuditLine,
    Delete,
    Document,
    Put,
    Store,
    StoreError,
    Transaction,
    Unreadable,
    job_key,
)
from colane.server.upkeep.moving import backup, copy, look_through, open_known
from colane.settings.store_address import store_address
from tests.memory_store import MemoryStore
from tests.server.harness import world
from tests.server.postgres_server import PostgresServer, postgres_server
from tests.server.redis_server import RedisServer, redis_server
from tests.server.stores import populate

Urls = dict[str, Callable[[str], str]]


class Servers(NamedTuple):
    redis: RedisServer
    postgres: PostgresServer

    def empty(self, kind: str, name: str) -> None:
        """Do what an operator does before a copy is put back."""
        if kind == "postgres":
            with self.postgres.raw() as raw:
                raw.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        else:
            with self.redis.raw() as raw_redis:
                for key in raw_redis.keys(f"{{{name}}}:*"):
                    raw_redis.delete(key)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with redis_server() as redis, postgres_server() as postgres:
        yield Servers(redis, postgres)


@pytest.fixture(scope="module")
def urls(servers: Servers) -> Urls:
    return {"redis": servers.redis.url, "postgres": servers.postgres.url}


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def everything(store: Store) -> tuple[object, ...]:
    """All but the mark of what it is a copy of."""
    held = ([row for row in store.read_all(name) if row[0] != COPIED_KEY] for name in COLLECTIONS)
    return *held, store.audit(0, 10_000), store.last_audit_number()


@pytest.mark.parametrize("kind", ["redis", "postgres", "sqlite"])
async def test_a_copy_is_the_same_and_its_jobs_go_on(urls: Urls, kind: str, tmp_path: Path) -> None:
    first = MemoryStore()
    await populate(first)
    place = tmp_path / "copy.db" if kind == "sqlite" else store_address(urls[kind]("copied"))
    second = open_known(place, may_make=True)
    found = copy(first, second)
    assert found.flaws == ()
    assert everything(second) == everything(first)
    third = SqliteStore(tmp_path / "third.db")
    copy(second, third)
    assert everything(third) == everything(first)
    for store in (second, third):
        assert look_through(store).flaws == ()
        async with world(store) as w:
            assert [job["name"] for job in await w.good("GET", "/live_jobs")] == ["runs", "waits"]
            assert await w.submit() == 4
        store.close()


@pytest.mark.parametrize("kind", ["redis", "postgres", "sqlite"])
def test_numbers_of_events_are_kept_where_the_oldest_are_gone(urls: Urls, kind: str, tmp_path: Path) -> None:
    first = MemoryStore()
    first.commit(Transaction(audit=[AuditEntry(float(n), "job", {"n": n}) for n in range(5)]))
    place = tmp_path / "copy.db" if kind == "sqlite" else store_address(urls[kind]("numbered"))
    second = open_known(place, may_make=True)
    second.take_lines(first.audit(3, 10))
    assert [line.number for line in second.audit(0, 10)] == [4, 5]
    assert second.last_audit_number() == 5
    assert second.commit(Transaction(audit=[AuditEntry(9.0, "job", {})])) == 6
    second.close()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_a_backup_is_of_one_moment_while_another_writes(urls: Urls, kind: str, tmp_path: Path) -> None:
    first, place, file = MemoryStore(), store_address(urls[kind]("backed")), tmp_path / "backup.db"
    await populate(first)
    source = connect(place)
    copy(first, source)
    asked = source.audit

    def audit(after: int, limit: int) -> list[AuditLine]:
        """Each part of the log is read while a writer has gone on."""
        source.commit(Transaction([Put(SUBMITTED_JOBS, job_key(3), {})], audit=[AuditEntry(9.0, "job", {})]))
        return asked(after, limit)

    source.audit = audit  # type: ignore[method-assign]
    counts = backup(source, file)
    source.close()
    assert counts[SUBMITTED_JOBS] == 1
    assert names_in(tmp_path) == ["backup.db"]
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        backup(source, file)
    kept = open_known(file)
    assert everything(kept) == everything(first)
    assert look_through(kept).flaws == ()
    kept.close()


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_no_backup_is_made_of_what_cannot_be_read(urls: Urls, kind: str, tmp_path: Path) -> None:
    source = connect(store_address(urls[kind]("damaged")))
    source.commit(Transaction([Put(SUBMITTED_JOBS, job_key(1), {"id": 1})]))
    source.note_unreadable(Unreadable(SUBMITTED_JOBS, job_key(2), "it is not as it was written"))
    with pytest.raises(StoreError, match=f"no copy was made: .*submitted_jobs {job_key(2)} cannot be read"):
        backup(source, tmp_path / "backup.db")
    source.close()
    assert names_in(tmp_path) == []


async def test_what_cannot_be_copied_is_refused() -> None:
    first, second = MemoryStore(), MemoryStore()
    await populate(first)
    second.commit(Transaction([Put(META, "x", {})]))
    with pytest.raises(StoreError, match="the store that is copied to is not empty"):
        copy(first, second)
    first.commit(Transaction([Put(SUBMITTED_JOBS, job_key(3), {"id": "what"})]))
    with pytest.raises(StoreError, match=f"cannot be read as a whole: submitted_jobs {job_key(3)} cannot be read"):
        copy(first, MemoryStore())


@pytest.mark.parametrize(
    ("filled", "fix"), [(META, "scheduler and try again"), (SUBMITTED_JOBS, "scheduler, empty the copy and try again")]
)
async def test_a_source_that_changes_meanwhile_is_noticed_and_half_a_copy_is_not_started_on(
    filled: str, fix: str
) -> None:
    class Changing(MemoryStore):
        def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
            if second.count(filled) and not self.last_audit_number() > before:
                self.commit(Transaction(audit=[AuditEntry(1.0, "job", {})]))
            return super().read_all(collection)

    first, second = Changing(), MemoryStore()
    before = 1_000
    await populate(first)
    before = first.last_audit_number()
    with pytest.raises(StoreError, match=rf"has changed meanwhile: .*\(colane store backup\), or stop its {fix}"):
        copy(first, second)
    assert second.get(META, COPYING_KEY) is not None
    with pytest.raises(StoreError, match="a copy into this store was broken off"):
        async with world(second):
            pass
    assert "a copy into it was broken off: empty it, and copy again" in look_through(second).flaws
    if filled == META:  # nothing was taken over: it is as good as empty
        copy(first, second)
        assert everything(second) == everything(first)


async def test_parts_that_contradict_one_another_are_named() -> None:
    store = MemoryStore()
    await populate(store)
    assert look_through(store).flaws == ()
    store.commit(Transaction(deletes=[Delete(LAUNCH_SPECS, job_key(3)), Delete("nodes", "n1")]))
    flaws = look_through(store).flaws
    assert "job 3 has not ended, and there is no command of it" in flaws
    assert "job 2 is placed on node n1, which is not known" in flaws


async def test_the_commands(urls: Urls, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = SqliteStore(tmp_path / "colane.db")
    await populate(store)
    store.close()
    file, url = str(tmp_path / "colane.db"), urls["redis"]("commanded")

    def said(*words: str) -> tuple[int, str]:
        code = run(["store", *words])
        out, err = capsys.readouterr()
        return code, out + err

    assert said("check", url) == (1, f"colane: there is no store at {store_address(url)}\n")
    code, text = said("copy", file, url)
    assert (code, "copied 1 submitted jobs, 1 assigned jobs, 1 nodes" in text) == (0, True), text
    code, text = said("check", url)
    assert (code, "is whole: 1 submitted jobs" in text) == (0, True), text
    kept = str(tmp_path / "kept.db")
    code, text = said("backup", url, kept)
    assert (code, f"colane store copy {kept} {store_address(url)} brings it back" in text) == (0, True), text
    assert said("check", kept)[0] == 0
    code, text = said("backup", file, kept)
    assert (code, "exists; name a new file" in text) == (2, True), text
    assert said("backup", urls["postgres"]("none"), str(tmp_path / "other.db"))[0] == 1
    assert said("copy", file, url)[0] == 1
    assert said("copy", file, "redis://:secret@db")[0] == 2
    assert said("check", str(tmp_path / "none.db"))[0] == 1


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_a_copy_stands_in_the_place_of_the_store_it_is_of_and_no_other_does(
    servers: Servers, urls: Urls, kind: str, tmp_path: Path
) -> None:
    """The way back that is written: the store emptied, a backup copied into it, the scheduler started."""
    url = urls[kind]("lost")
    lost, elsewhere = store_address(url), store_address(urls[kind]("elsewhere"))
    state = tmp_path / "state"
    state.mkdir()
    store = open_store(lost, state)
    await populate(store)
    store.close()
    assert run(["store", "backup", url, str(tmp_path / "backup.db")]) == 0
    servers.empty(kind, "lost")
    with pytest.raises(StoreError, match="is empty, but there was one here"):
        open_store(lost, state)
    open_known(lost, may_make=True).close()  # another one that was begun there
    with pytest.raises(StoreError, match="is not the one that was here before"):
        open_store(lost, state)
    servers.empty(kind, "lost")
    assert run(["store", "copy", str(tmp_path / "backup.db"), url]) == 0
    for _ in range(2):
        store = open_store(lost, state)
        async with world(store) as w:
            assert [job["name"] for job in await w.good("GET", "/live_jobs")] == ["runs", "waits"]
        store.close()
    # A copy of the copy may stand there, too; a copy of another store may not.
    servers.empty(kind, "elsewhere")
    assert run(["store", "copy", url, urls[kind]("elsewhere")]) == 0
    servers.empty(kind, "lost")
    assert run(["store", "copy", urls[kind]("elsewhere"), url]) == 0
    open_store(lost, state).close()
    servers.empty(kind, "elsewhere")
    other = open_known(elsewhere, may_make=True)
    other.commit(Transaction([Put(META, "cluster", {"id": "other"})]))
    other.close()
    servers.empty(kind, "lost")
    assert run(["store", "copy", urls[kind]("elsewhere"), url]) == 0
    with pytest.raises(StoreError, match="is not the one that was here before"):
        open_store(lost, state)
