"""Commits whose connection broke: made, never made, or made later, with real servers behind a proxy that cuts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from colane.server.store import store as names
from colane.server.store.postgres_store import PostgresStore
from colane.server.store.redis_store import RedisStore
from colane.server.store.store import (
    AuditEntry,
    ConflictError,
    Put,
    Store,
    StoreError,
    StoreWriter,
    Transaction,
)
from colane.settings.store_address import StoreAddress
from tests.server.harness import SLEEP, world
from tests.server.postgres_server import postgres_server
from tests.server.proxy import Cut, Proxy, proxy
from tests.server.redis_server import redis_server

Cutting = tuple[Store, Proxy]
CUTS = list(Cut)
MADE = {Cut.WITHIN, Cut.AFTER}
JOBS = names.SUBMITTED_JOBS


@pytest.fixture(scope="module", params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """What the server speaks, and the path of its socket."""
    if request.param == "redis":
        with redis_server() as redis:
            yield "redis", redis.socket
    else:
        with postgres_server() as postgres:
            yield "postgres", postgres.folder / ".s.PGSQL.5432"


@pytest.fixture
def cutting(server: tuple[str, Path], request: pytest.FixtureRequest) -> Iterator[Cutting]:
    """A new store behind a proxy."""
    kind, path = server
    name = f"c{crc32(request.node.name.encode())}"
    folder = path.parent / name
    folder.mkdir()
    at = folder / path.name
    mark = b"colane_2_commit" if kind == "redis" else b"colane_commit_2"
    with proxy(at, path, mark) as between:
        if kind == "redis":
            store: Store = RedisStore(StoreAddress("unix", path=str(at), name=name))
        else:
            store = PostgresStore(
                StoreAddress("postgres", port=5432, path=str(folder), database="postgres", user="postgres", name=name)
            )
        yield store, between
        store.close()


def change(number: int) -> Transaction:
    return Transaction([Put(JOBS, str(number), {"n": number})], audit=[AuditEntry(1.0, "job", {"n": number})])


@pytest.mark.parametrize("cut", CUTS)
def test_the_next_commit_knows_whether_it_was_made(cutting: Cutting, cut: Cut) -> None:
    store, between = cutting
    store.commit(change(1), StoreWriter(0, 0, 0))
    between.cut = cut
    with pytest.raises(StoreError, match="could not be written"):
        store.commit(change(2), StoreWriter(0, 1, 1))
    assert between.met == 1
    between.deliver()
    was_made = cut is not Cut.BEFORE
    assert store.version() == store.last_audit_number() == store.count(JOBS) == 1 + was_made
    if was_made:
        with pytest.raises(ConflictError):
            store.commit(change(3), StoreWriter(0, None, 1))
    store.commit(change(3), StoreWriter(0, 1 + was_made, 1 + was_made))
    assert store.version() == store.last_audit_number() == store.count(JOBS) == 2 + was_made


def test_one_that_comes_after_the_next_changes_nothing(cutting: Cutting) -> None:
    store, between = cutting
    between.cut = Cut.LATE
    with pytest.raises(StoreError):
        store.commit(change(1), StoreWriter(0, 0, 0))
    assert (store.version(), store.count(JOBS)) == (0, 0)
    store.commit(Transaction([Put(JOBS, "other", {})]), StoreWriter(0, 0, 0))
    between.deliver()
    assert [key for key, _ in store.read_all(JOBS)] == ["other"]
    assert (store.version(), store.last_audit_number()) == (1, 0)


@pytest.mark.parametrize("cut", CUTS)
async def test_a_submission_is_made_once_and_its_repeat_is_given_the_first_answer(cutting: Cutting, cut: Cut) -> None:
    store, between = cutting
    async with world(store) as w:
        assert await w.submit(name="first") == 1
        between.cut = cut
        mine = {**SLEEP, "name": "mine"}
        assert (await w.post("/job", mine, **{"Idempotency-Key": "mine"})).status_code == 503
        assert between.met == 1
        between.deliver()
        answers = [await w.post("/job", mine, **{"Idempotency-Key": "mine"}) for _ in range(3)]
        assert [answer.status_code for answer in answers[1:]] == [200, 200], [answer.text for answer in answers]
        assert answers[1].json() == answers[2].json() == {"id": 2}
        assert await w.submit(name="last") == 3
        live = await w.good("GET", "/live_jobs")
        assert [(job["id"], job["name"]) for job in live] == [(1, "first"), (2, "mine"), (3, "last")]


async def test_a_submission_that_was_late_is_never_answered_with_anothers_job(cutting: Cutting) -> None:
    store, between = cutting
    async with world(store, tick_s=3600.0) as w:
        between.cut = Cut.LATE
        assert (await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})).status_code == 503
        theirs = await w.post("/job", {**SLEEP, "name": "theirs"})
        between.deliver()
        mine = await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})
        assert (theirs.json(), mine.json()) == ({"id": 1}, {"id": 2})
        assert [job["name"] for job in await w.good("GET", "/live_jobs")] == ["theirs", "mine"]
