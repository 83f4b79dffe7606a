"""A bit that has turned in a store is never believed: the start is refused, or the record it was in is named."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from colane.core.config import CoreConfig
from colane.server.assembly import make_service
from colane.server.board.read_model import COUNTERS, COUNTERS_KEY, read_board
from colane.server.config import ServiceConfig
from colane.server.store.sqlite import MIGRATIONS, SqliteStore
from colane.server.store.store import (
    ASSIGNED_JOBS,
    AUDIT,
    COLLECTIONS,
    EPOCHS,
    FINISHED_JOBS,
    IDEMPOTENCY,
    LAUNCH_SPECS,
    META,
    NODES,
    PROFILES,
    RUN_TIMES,
    SUBMITTED_JOBS,
    UNREADABLE_LINE,
    StoreError,
    UnreadableError,
)
from colane.server.store.unreadable import WITHOUT
from colane.server.upkeep import copies
from colane.server.upkeep.salvage import set_aside
from colane.server.writer.driver import restore_state
from tests.disks import fill, small_disk
from tests.server.harness import SLEEP, finished, launched, node, report, world
from tests.server.stores import populate

__all__ = ["small_disk"]

SCHEMA_1 = Path(__file__).with_name("store_of_schema_1.sql")
FLIPS = 300
INTEGERS = (1, 2, 3, 4, 6)
"""In how many bytes SQLite keeps an integer."""


@pytest.fixture
async def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.db"
    store = SqliteStore(path)
    await populate(store)
    store.close()
    return path


def placed(whole: Path, data: bytes) -> Path:
    """A state directory with this store."""
    path = whole.with_name("flipped") / "colane.db"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    path.write_bytes(data)
    return path


def rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Collection, key and body of every record, the lines of the log among them."""
    with closing(sqlite3.connect(path)) as read:
        yield from read.execute("SELECT collection, key, body FROM documents")
        yield from read.execute("SELECT 'audit', number, kind || body FROM audit")


def believed(path: Path) -> dict[str, Any]:
    """All that a service takes from a store, and what it says that it leaves out. StoreError where it is refused."""
    store = SqliteStore(path)
    try:
        found: dict[str, Any] = {}
        for name in COLLECTIONS:
            known = dict(store.read_all(name))
            found[name] = known
            assert dict(store.page(name, "", 1000)) == dict(store.page_back(name, None, 1000)) == known
            for key, document in known.items():
                assert store.get(name, key) == document
        found[AUDIT] = store.audit(0, 10_000)
        service = make_service(store, ServiceConfig(policy="fifo", workdir="/srv"))
        restore_state(store, read_board(store), CoreConfig())
        health = service.health.answer()
        assert (health["status"] == "degraded") == bool(store.unreadable()) == bool(health["unreadable"])
        return {**found, "unreadable": {(one.collection, one.key) for one in store.unreadable()}}
    finally:
        store.close()


def is_sentence(error: StoreError) -> bool:
    return "store" in str(error) and "\n" not in str(error)


class TestAnyBit:
    def test_that_has_turned_is_told_or_means_nothing(self, whole: Path) -> None:
        data, rng = whole.read_bytes(), random.Random(7)
        before = believed(placed(whole, data))
        assert before.pop("unreadable") == set()
        counted = {"refused": 0, "named": 0, "unused": 0}
        for _ in range(FLIPS):
            place, bit = rng.randrange(len(data)), rng.randrange(8)
            path = placed(whole, data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            try:
                after = believed(path)
            except StoreError as error:
                counted["refused"] += is_sentence(error)
                continue
            left_out = after.pop("unreadable")
            if left_out:
                assert copies.check(path).flaws
                counted["named"] += 1
                continue
            assert after == before, f"bit {bit} of byte {place} changed what is believed, and nothing told"
            counted["unused"] += 1
        assert min(counted.values()) > 0, counted


def test_a_schema_of_which_a_bit_has_turned_is_refused_in_a_line(whole: Path) -> None:
    """SQLite quotes of it what is no text, or has several lines."""
    data = whole.read_bytes()
    at = data.index(b"CREATE TABLE audit")
    refused, unsaid = 0, list[str]()
    for place in range(at, at + 250, 3):
        for bit in (6, 7):
            path = placed(whole, data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
            try:
                believed(path)
            except StoreError as error:
                refused += is_sentence(error)
                unsaid += [str(error)] * (not is_sentence(error))
            copies.check(path)
    assert refused
    assert unsaid == []


PARTS = ("body", "key", "collection", "checksum", "types")


def flipped(whole: Path, collection: str, part: str) -> tuple[bytes, str]:
    """The store's bytes with one bit of the first record of a collection turned, and the key of that record."""
    data = bytearray(whole.read_bytes())
    with closing(sqlite3.connect(whole)) as read:
        if collection == AUDIT:
            key, kind, body, checksum = read.execute("SELECT number, kind, body, checksum FROM audit").fetchone()
            begin = f"{kind}{body}".encode()[:100]
        else:
            query = "SELECT key, body, checksum FROM documents WHERE collection = ?"
            key, body, checksum = read.execute(query, (collection,)).fetchone()
            begin = f"{collection}{key}{body}".encode()[:100]
    end = body[-20:].encode() + checksum.to_bytes(
        next(size for size in INTEGERS if checksum < 2 ** (8 * size - 1)), "big"
    )
    assert data.count(begin) == data.count(end) == 1, "the record lies in one place"
    at = data.index(begin)
    place = {
        "body": at + len(begin) - 1,
        "key": at + len(collection) + len(str(key)) // 2,
        "collection": at + 2,
        "checksum": data.index(end) + len(end) - 1,
        "types": at - 2,  # the type and size of the body; where the checksum is larger, of that
    }[part]
    data[place] ^= 1
    return bytes(data), str(key)


CASES = [(name, part) for name in COLLECTIONS for part in PARTS] + [(AUDIT, part) for part in ("body", "checksum")]


@pytest.mark.parametrize(("collection", "part"), CASES)
def test_a_bit_of_a_record_is_judged_by_what_the_service_may_do_without(
    whole: Path, collection: str, part: str
) -> None:
    data, key = flipped(whole, collection, part)
    path = placed(whole, data)
    if part in {"body", "checksum"} and collection in WITHOUT:
        assert (collection, key) in believed(path)["unreadable"]
    elif part in {"body", "checksum"}:
        with pytest.raises(StoreError, match=rf"{collection} {key} cannot be read: it is not as.*colane restore"):
            believed(path)
    else:  # where it lies or whose it is has changed: SQLite may tell before the checksum does
        try:
            is_told = bool(believed(path)["unreadable"])
        except StoreError as error:
            is_told = is_sentence(error)
        assert is_told
    flaws = copies.check(path).flaws
    assert flaws
    if part == "body":
        assert f"{collection} {key} cannot be read" in " ".join(flaws)


def as_it_was(whole: Path) -> dict[str, Any]:
    return believed(placed(whole, whole.read_bytes()))


@pytest.mark.parametrize("collection", [*COLLECTIONS, AUDIT])
async def test_the_rest_can_be_gone_on_with(whole: Path, collection: str) -> None:
    before = as_it_was(whole)
    data, key = flipped(whole, collection, "body")
    path = placed(whole, data)
    gone = set_aside(path)
    assert gone is not None
    assert gone.left_out == (f"{collection} {key}",)
    assert set_aside(path) is None
    after = believed(path)
    assert after.pop("unreadable") == set()
    assert [line.number for line in after.pop(AUDIT)] == [line.number for line in before.pop(AUDIT)]
    counters = COUNTERS.read(after[META][COUNTERS_KEY])
    assert (counters.next_job_id, counters.next_node_order) == (4, 1)
    for name in COLLECTIONS:
        with_its_job = name == LAUNCH_SPECS and collection in {SUBMITTED_JOBS, ASSIGNED_JOBS}
        lost = {key} if name == collection or with_its_job else set()
        assert before[name].keys() - after[name].keys() == lost - {COUNTERS_KEY}
    store = SqliteStore(path)
    async with world(store) as w:
        await w.good("POST", "/node", node())
        assert await w.submit() == 4
    store.close()


def test_a_record_that_keeps_others_from_being_found_can_be_gone_on_without(whole: Path) -> None:
    path = placed(whole, flipped(whole, LAUNCH_SPECS, "key")[0])
    with pytest.raises(StoreError, match="out of order"):
        believed(path)
    path = placed(whole, flipped(whole, LAUNCH_SPECS, "key")[0])
    gone = set_aside(path)
    assert gone is not None
    assert len(gone.left_out) == 1
    assert believed(path)[LAUNCH_SPECS].keys() == {f"{3:016}"}


def test_the_newest_line_of_the_log_tells_how_much_has_happened(whole: Path) -> None:
    with closing(sqlite3.connect(whole, isolation_level=None)) as edit:
        edit.execute("UPDATE audit SET body = '{}' WHERE number = (SELECT max(number) FROM audit)")
    with pytest.raises(StoreError, match=r"audit \d+ cannot be read"):
        believed(placed(whole, whole.read_bytes()))


class TestWithout:
    """What the service does without a record that it may do without."""

    async def test_a_job_whose_command_is_gone_fails_where_it_would_start(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, LAUNCH_SPECS, "body")[0]))
        async with world(store) as w:
            status, detail = await w.refused("GET", "/job/2/launch")
            assert (status, "submit it again" in detail) == (410, True)
            await w.good("POST", "/node/n1/report", report(launched(2)))  # where it runs it goes on
            assert await w.state(2) == "launching"
            assert (await w.good("GET", "/job/2"))["command"] is None
            assert (await w.good("POST", "/finished_job", finished(2)))["believed"]
            assert await w.state(2) == "succeeded"
            assert store.unreadable() == []
        store.close()

    async def test_a_request_whose_answer_is_gone_is_not_done_twice(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, IDEMPOTENCY, "body")[0]))
        async with world(store) as w:
            answer = await w.post("/job", {**SLEEP, "name": "waits"}, **{"Idempotency-Key": "once"})
            assert answer.status_code == 500
            assert "once cannot be read" in answer.json()["detail"]
            assert [job["id"] for job in await w.good("GET", "/live_jobs")] == [2, 3]
        store.close()

    async def test_history_is_left_out_and_ids_go_on(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, FINISHED_JOBS, "body")[0]))
        async with world(store) as w:
            assert await w.good("GET", "/finished_jobs") == []
            assert (await w.refused("GET", "/job/1"))[0] == 500
            health = await w.good("GET", "/health")
            assert (health["status"], health["unreadable"]) == ("degraded", ["finished_jobs 1"])
            assert "finished_jobs 1" in health["detail"]
            assert await w.submit() == 4
        store.close()

    async def test_health_which_is_open_to_all_names_no_users_and_families(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, PROFILES, "body")[0]))
        async with world(store) as w:
            assert (await w.good("GET", "/health"))["unreadable"] == ["profiles"]
        store.close()

    async def test_a_line_of_the_log_leaves_no_gap(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, AUDIT, "body")[0]))
        lines = store.audit(0, 1000)
        assert [line.number for line in lines] == list(range(1, store.last_audit_number() + 1))
        assert [line.kind for line in lines].count(UNREADABLE_LINE) == 1
        store.close()

    async def test_a_record_that_is_written_anew_is_readable(self, whole: Path) -> None:
        store = SqliteStore(placed(whole, flipped(whole, PROFILES, "body")[0]))
        async with world(store) as w:
            await w.good("PUT", "/profiles", {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.7})
            assert (await w.good("GET", "/health"))["status"] == "ok"
        assert store.unreadable() == []
        store.close()


def test_reading_goes_on_past_a_page_on_which_nothing_can_be_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "colane.db")
    store._writer.execute("BEGIN")
    for number in range(10):
        row = (FINISHED_JOBS, str(number), "{}", -1)
        store._writer.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
    store._writer.execute(
        "INSERT INTO documents SELECT ?, 'x', '{}', checksum(?, 'x', '{}')", (FINISHED_JOBS, FINISHED_JOBS)
    )
    store._writer.execute("COMMIT")
    assert store.page(FINISHED_JOBS, "", 3) == [("x", {})]
    assert store.page_back(FINISHED_JOBS, "x", 3) == []
    assert len(store.unreadable()) == 10
    with pytest.raises(UnreadableError):
        store.get(FINISHED_JOBS, "7")
    store.close()


class TestSchema1:
    """A store of the version before, as that version had written it."""

    @pytest.fixture
    def old(self, tmp_path: Path) -> Path:
        path = tmp_path / "state" / "colane.db"
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as made:
            made.executescript(SCHEMA_1.read_text())
        return path

    def test_all_of_it_is_there_and_has_checksums(self, old: Path) -> None:
        before = sorted((name, str(key), body) for name, key, body in rows(old))
        assert len(before) > len(COLLECTIONS)
        found = believed(old)
        assert found["unreadable"] == set()
        after = sorted((name, str(key), body) for name, key, body in rows(old))
        of_a_start = {META, EPOCHS}
        assert [row for row in after if row[0] not in of_a_start] == [row for row in before if row[0] not in of_a_start]
        assert found[SUBMITTED_JOBS].keys() == {f"{3:016}"}
        assert found[ASSIGNED_JOBS].keys() == {f"{2:016}"}
        assert copies.check(old).schema == len(MIGRATIONS)
        with closing(sqlite3.connect(old, isolation_level=None)) as edit:
            edit.execute("UPDATE documents SET body = '{}' WHERE collection = ?", (NODES,))
        with pytest.raises(StoreError, match="nodes n1 cannot be read"):
            believed(old)

    def test_a_copy_of_it_is_looked_through_and_put_back(self, old: Path, tmp_path: Path) -> None:
        counts = dict.fromkeys(COLLECTIONS, 1) | {LAUNCH_SPECS: 2, META: 3}
        del counts[EPOCHS], counts[RUN_TIMES]  # which came with later schemas
        assert copies.check(old) == (1, counts, ())
        copies.restore(old, tmp_path / "colane.db")
        assert believed(tmp_path / "colane.db")["unreadable"] == set()

    def test_a_record_that_was_damaged_before_is_not_believed_for_its_checksum(self, old: Path) -> None:
        with closing(sqlite3.connect(old, isolation_level=None)) as edit:
            edit.execute("UPDATE documents SET body = CAST(x'7b22ff' AS TEXT) WHERE collection = ?", (PROFILES,))
        assert len(believed(old)["unreadable"]) == 1

    def test_a_full_disk_leaves_it_as_it_was(self, old: Path, small_disk: Path) -> None:
        path = small_disk / "colane.db"
        shutil.copy(old, path)
        before = list(rows(path))
        fill(small_disk / "filler")
        with pytest.raises(StoreError, match=r"disk is full|No space left|disk I/O error"):
            SqliteStore(path)
        (small_disk / "filler").unlink()
        assert copies.check(path).schema == 1
        assert list(rows(path)) == before
        assert json.dumps(believed(path)["unreadable"] == set()) == "true"
