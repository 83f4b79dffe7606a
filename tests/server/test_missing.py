"""Records that are gone are damage, too: {each collection} x {absent, halved} x {each store}."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from colane.cli.app import run
from colane.server.store.identity import begin_epoch
from colane.server.store.sqlite import COUNTED_FROM, SqliteStore
from colane.server.store.store import (
    ASSIGNED_JOBS,
    COLLECTIONS,
    EPOCHS,
    META,
    NODES,
    PROFILES,
    SUBMITTED_JOBS,
    AuditEntry,
    AuditLine,
    Delete,
    Put,
    Store,
    StoreError,
    StoreWriter,
    Transaction,
)
from colane.server.store.unreadable import WITHOUT
from colane.server.upkeep import copies
from colane.server.upkeep.moving import copy, look_through, open_known
from colane.server.upkeep.salvage import set_aside
from colane.settings.store_address import store_address
from tests.server.harness import world
from tests.server.postgres_server import PostgresServer, postgres_server
from tests.server.redis_server import RedisServer, redis_server
from tests.server.stores import populate

KINDS = ("sqlite", "redis", "postgres")
NUMBERS = count()


class Kept:
    """A store of one kind that can be opened again, and robbed behind its back."""

    def __init__(self, kind: str, request: pytest.FixtureRequest, folder: Path) -> None:
        self.kind, self.name, self.file = kind, f"missing-{next(NUMBERS)}", folder / "colane.db"
        self._server = None if kind == "sqlite" else request.getfixturevalue(kind)
        url = "" if self._server is None else self._server.url(self.name)
        self.place = store_address(url) if url else self.file
        self.shown = url or str(self.file)

    def open(self, *, may_make: bool = False) -> Store:
        return open_known(self.place, may_make=may_make)

    def rob(self, collection: str, keys: list[str]) -> None:
        """Take records out as no commit does."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.file)) as raw, raw:
                gone = [(collection, key) for key in keys]
                raw.executemany("DELETE FROM documents WHERE collection = ? AND key = ?", gone)
        elif self.kind == "redis":
            assert isinstance(self._server, RedisServer)
            with self._server.raw() as raw_redis:
                raw_redis.hdel(f"{{{self.name}}}:{collection}", *keys)
                raw_redis.zrem(f"{{{self.name}}}:{collection}:keys", *keys)
        else:
            assert isinstance(self._server, PostgresServer)
            with self._server.raw() as raw_postgres:
                raw_postgres.execute(f'SET search_path TO "{self.name}"')
                raw_postgres.execute(
                    "DELETE FROM documents WHERE collection = %s AND key = ANY (%s)", [collection, keys]
                )


def lacking(collection: str, lost: int, counted: int) -> str:
    return f"{collection} lacks {lost} record{'s' * (lost != 1)} of {counted}"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(request.param, request, tmp_path)


Part = Callable[[list[str]], list[str]]


@pytest.mark.parametrize("part", [list, lambda keys: keys[: math.ceil(len(keys) / 2)]], ids=["absent", "halved"])
async def test_what_is_gone_is_named_and_nothing_vital_is_gone_without(kept: Kept, part: Part) -> None:
    store = kept.open(may_make=True)
    await populate(store)
    for collection in COLLECTIONS:
        documents = dict(store.read_all(collection))
        gone = part(sorted(documents))
        store.close()
        kept.rob(collection, gone)
        said = lacking(collection, len(gone), len(documents))
        store = kept.open()
        assert said in look_through(store).flaws
        if collection in WITHOUT:
            async with world(store, tick_s=60.0) as w:
                assert collection in (await w.good("GET", "/health"))["unreadable"]
        else:
            with pytest.raises(StoreError, match=f"{said}. Without that jobs would be ended"):
                begin_epoch(store, 9.0)
        # What is written anew as a whole is whole again.
        store.commit(Transaction(clears=[collection]))
        store.commit(Transaction([Put(collection, key, body) for key, body in documents.items()]))
        store.close()
        store = kept.open()
        assert not any(flaw.startswith(f"{collection} lacks") for flaw in look_through(store).flaws)
    store.close()


def test_every_way_to_change_a_collection_is_counted(kept: Kept) -> None:
    store = kept.open(may_make=True)
    put = {key: Put(PROFILES, key, {"key": key}) for key in "abcdef"}
    store.commit(Transaction([put["a"], put["b"], put["c"]], audit=[AuditEntry(1.0, "job", {})]))
    store.commit(Transaction([put["a"], put["d"]], [Delete(PROFILES, "b"), Delete(PROFILES, "never there")]))
    store.commit(Transaction([put["c"]], [Delete(PROFILES, "c")]))
    store.commit(Transaction([], [Delete(PROFILES, "d")]), StoreWriter(0, version=store.version()))
    assert missing(store) == []
    store.commit(Transaction([put["e"], put["f"]], [Delete(PROFILES, "e")], clears=[PROFILES]))
    assert missing(store) == []
    store.commit(Transaction([put["e"]], [Delete(PROFILES, "f")]))
    store.close()
    kept.rob(PROFILES, ["e"])
    store = kept.open()
    assert missing(store) == [lacking(PROFILES, 1, 1)]
    store.close()


def missing(store: Store) -> list[str]:
    store.note_missing()
    return [*map(str, store.unreadable())]


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_what_a_scheduler_of_before_has_written_is_counted_anew(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It changes records, events and version, and counts nothing; taking over lines does so, too."""
    kept = Kept(kind, request, tmp_path)
    store = kept.open(may_make=True)
    store.commit(Transaction([Put(NODES, "n1", {}), Put(NODES, "n2", {})]))
    kept.rob(NODES, ["n1"])
    store.take_lines([AuditLine(1, 0.0, "job", {})])
    assert missing(store) == []
    store.commit(Transaction([Put(NODES, "n3", {})]))
    assert missing(store) == []
    kept.rob(NODES, ["n3"])
    assert missing(store) == [lacking(NODES, 1, 2)]
    store.close()


@pytest.mark.parametrize("collection", [ASSIGNED_JOBS, SUBMITTED_JOBS])
async def test_no_copy_is_made_of_what_lacks_records_and_check_names_them(
    kept: Kept, collection: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = kept.open(may_make=True)
    await populate(store)
    keys = [key for key, _ in store.read_all(collection)]
    store.close()
    kept.rob(collection, keys)
    store = kept.open()
    with pytest.raises(StoreError, match=f"cannot be read as a whole: {lacking(collection, 1, 1)}"):
        copy(store, SqliteStore(tmp_path / "copy.db"))
    store.close()
    assert run(["store", "check", kept.shown]) == 1
    assert lacking(collection, 1, 1) in capsys.readouterr().err
    if kept.kind == "sqlite":
        assert run(["check", str(kept.file)]) == 1
        assert lacking(collection, 1, 1) in capsys.readouterr().err


async def test_a_store_is_made_anew_without_what_is_gone(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept = Kept("sqlite", request, tmp_path)
    store = kept.open(may_make=True)
    await populate(store)
    keys = {name: [key for key, _ in store.read_all(name)] for name in (ASSIGNED_JOBS, EPOCHS)}
    store.close()
    for name, gone in keys.items():
        kept.rob(name, gone)
    made = set_aside(kept.file)
    assert made is not None
    assert made.left_out == tuple(lacking(name, len(gone), len(gone)) for name, gone in keys.items())
    assert copies.check(kept.file).flaws == ()
    assert set_aside(kept.file) is None


async def test_a_copy_that_was_put_back_is_counted_as_it_is(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept = Kept("sqlite", request, tmp_path)
    store = kept.open(may_make=True)
    await populate(store)
    copies.backup(kept.file, tmp_path / "copy.db")
    store.close()
    copies.restore(tmp_path / "copy.db", kept.file)
    store = kept.open()
    assert look_through(store).flaws == ()
    begin_epoch(store, 9.0)
    store.close()


async def test_a_file_of_before_is_counted_when_it_is_opened(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kept = Kept("sqlite", request, tmp_path)
    store = kept.open(may_make=True)
    await populate(store)
    store.close()
    with closing(sqlite3.connect(kept.file)) as raw:
        raw.executescript(f"DROP TABLE counts; PRAGMA user_version = {COUNTED_FROM - 1};")
    assert copies.check(kept.file).flaws == ()
    kept.open().close()
    kept.rob(META, ["counters"])
    assert copies.check(kept.file).flaws[0].startswith(f"{META} lacks 1 record of ")
