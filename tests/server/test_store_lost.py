"""The store is lost, replaced or full: said at once, nothing acknowledged that is not kept, none taken for another."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.listening.seldom import Seldom
from colane.server.config import ServerConfig
from colane.server.main import ServerError, serve
from colane.server.store.sqlite import PAGE_BYTES, SqliteStore
from colane.server.store.store import META, SUBMITTED_JOBS, Put, StoreError, Transaction
from tests.disks import disk_of_a_megabyte, fill, small_disk
from tests.memory_store import MemoryStore
from tests.server.harness import DEADLINE_S, SLEEP, World, finished, launched, node, report, world
from tests.server.processes import scheduler

__all__ = ["small_disk"]


async def health_is(w: World, status: int) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await w.http.get("/health")).status_code != status:
            await asyncio.to_thread(lambda: None)
    body: dict[str, Any] = answer.json()
    return body


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def overwritten(path: Path) -> None:
    SqliteStore(path.with_name("another.db")).close()
    path.with_name("another.db").replace(path)


@pytest.mark.parametrize("loss", [Path.unlink, moved, overwritten], ids=["deleted", "moved", "replaced"])
class TestVanished:
    async def test_a_running_scheduler_notices(self, tmp_path: Path, loss: Callable[[Path], None]) -> None:
        path = tmp_path / "colane.db"
        store = SqliteStore(path)
        async with world(store, tick_s=0.01) as w:
            await w.submit()
            loss(path)
            status, detail = await w.refused("POST", "/job", SLEEP)
            assert status == 503
            assert "was deleted, moved or replaced while the scheduler runs" in detail
            assert "was deleted, moved or replaced" in (await health_is(w, 503))["detail"]
        store.close()


async def test_one_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "colane.db"
    store = SqliteStore(path)
    async with world(store, tick_s=0.01) as w:
        await w.submit()
        moved(path)
        await health_is(w, 503)
        path.with_name("elsewhere").rename(path)
        await health_is(w, 200)
        assert await w.submit() == 2
    store.close()


async def test_health_tells_of_writes_that_fail_and_of_their_end() -> None:
    store = MemoryStore()
    async with world(store, tick_s=0.01) as w:
        store.failure = "the disk is full"
        await w.refused("POST", "/job", SLEEP)
        assert (await health_is(w, 503))["detail"] == "the disk is full"
        store.failure = None
        await health_is(w, 200)  # nothing was asked for


async def test_that_the_store_is_away_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    store, now_s = MemoryStore(), [0.0]
    async with world(store, tick_s=0.01) as w:
        w.service.driver._seldom = Seldom(clock=lambda: now_s[0])
        for minute, failure in enumerate(("no route to port 1", "no route to port 2", "no route to port 3")):
            now_s[0] = minute * 60.0
            store.failure = failure
            for _ in range(20):
                await w.refused("POST", "/job", SLEEP)
            lines = [record for record in caplog.records if "no route" in record.getMessage()]
            assert len(lines) == minute + 1
    assert "more such since this was last said" in lines[-1].getMessage()


@pytest.mark.live
def test_a_second_scheduler_is_refused_though_the_directory_was_deleted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with scheduler(state) as running:
        shutil.rmtree(state)
        with pytest.raises(ServerError, match=rf"another scheduler \(pid {running.process.pid}\) uses"):
            asyncio.run(serve(ServerConfig(state_dir=state, port=0)))
        assert running.http.post("/job", json=SLEEP).status_code == 503


def test_a_full_disk_at_the_start_is_one_line(small_disk: Path) -> None:
    fill(small_disk / "filler")
    with pytest.raises((ServerError, StoreError), match=r"No space left on device|disk is full|disk I/O error"):
        asyncio.run(serve(ServerConfig(state_dir=small_disk / "state", port=0)))
    (small_disk / "filler").unlink()
    (small_disk / "state").mkdir(exist_ok=True)
    (small_disk / "state" / "lock").touch()
    fill(small_disk / "filler")
    with pytest.raises((ServerError, StoreError), match=r"No space left on device|disk is full|disk I/O error"):
        asyncio.run(serve(ServerConfig(state_dir=small_disk / "state", port=0)))


async def test_a_disk_that_fills_up_loses_nothing_and_is_used_again_once_there_is_room(small_disk: Path) -> None:
    path, filler = small_disk / "colane.db", small_disk / "filler"
    store = SqliteStore(path)
    async with world(store, tick_s=0.01) as w:
        assert await w.submit() == 1
        fill(filler)
        full = (503, f"the store {path} could not be written: database or disk is full; make room on its disk")
        for _ in range(2):
            assert await w.refused("POST", "/job", SLEEP) == full
        assert (await health_is(w, 503))["detail"] == full[1]
        assert [job["id"] for job in await w.good("GET", "/live_jobs")] == [1]
        filler.unlink()
        await health_is(w, 200)
        assert await w.submit() == 2
    store.close()
    again = SqliteStore(path)
    assert [body["id"] for _, body in again.read_all(SUBMITTED_JOBS)] == [1, 2]
    again.close()


@pytest.mark.parametrize("files", range(1, 5))
def test_a_disk_with_no_room_for_more_files_is_one_line_and_the_next_start_finds_no_half_a_store(
    tmp_path: Path, files: int
) -> None:
    with disk_of_a_megabyte(tmp_path / "disk", files) as place:
        with pytest.raises(StoreError, match=r"could not be opened: .*room .*for more files \(df -i\)") as met:
            SqliteStore(place / "colane.db")
        assert "\n" not in str(met.value)
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(place)], check=True)
        store = SqliteStore(place / "colane.db")
        store.commit(Transaction([Put(META, "one", {"kept": True})]))
        store.close()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("loss", [Path.unlink, moved, emptied], ids=["deleted", "moved", "emptied"])
class TestBegunAnew:
    def test_only_where_that_is_said(self, tmp_path: Path, loss: Callable[[Path], None]) -> None:
        path = tmp_path / "colane.db"
        SqliteStore(path).close()
        loss(path)
        for _ in range(2):  # a refusal makes nothing that the next start would believe
            with pytest.raises(StoreError, match=r"is empty or gone, but there was one here: put it back, or remove"):
                SqliteStore(path)
        (tmp_path / "colane.db-made").unlink()
        SqliteStore(path).close()

    def test_not_where_it_is_put_back(self, tmp_path: Path, loss: Callable[[Path], None]) -> None:
        path = tmp_path / "colane.db"
        store = SqliteStore(path)
        store.commit(Transaction(puts=[Put(META, "one", {"kept": True})]))
        store.close()
        shutil.copy(path, tmp_path / "copy")
        loss(path)
        shutil.copy(tmp_path / "copy", path)
        store = SqliteStore(path)
        assert store.get(META, "one") == {"kept": True}
        store.close()


def test_a_damaged_store_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "colane.db"
    store = SqliteStore(path)
    store.commit(Transaction(puts=[Put(META, f"{n:04}", {"text": "x" * 200}) for n in range(500)]))
    store.close()
    whole, refused = path.read_bytes(), 0
    for page in range(
        1, len(whole) // PAGE_BYTES
    ):  # the first three bytes of a page's header say of what kind and how full
        path.write_bytes(whole[: PAGE_BYTES * page] + b"\x00\xff\xff\xff\xff" + whole[PAGE_BYTES * page + 5 :])
        try:
            SqliteStore(path).close()
        except StoreError as error:
            refused += "put a copy of it back" in str(error) or "malformed" in str(error)
    assert refused == len(whole) // PAGE_BYTES - 1
    path.write_bytes(whole)
    SqliteStore(path).close()


class TestCluster:
    async def test_its_identity_stays_with_the_store(self, tmp_path: Path) -> None:
        seen = []
        for name in ("one", "one", "two"):
            store = SqliteStore(tmp_path / name)
            async with world(store) as w:
                seen.append((await w.good("POST", "/node", node()))["cluster_id"])
                assert (await w.good("GET", "/health"))["cluster_id"] == seen[-1]
            store.close()
        assert seen[0] == seen[1] != seen[2]

    async def test_jobs_of_another_cluster_are_not_taken_for_ours(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            job = await w.submit()
            ours = (await w.good("GET", "/health"))["cluster_id"]
            await w.good("POST", "/node/n1/report", report(launched(job), cluster_id="another"))
            assert await w.state(job) == "assigned"
            ended = await w.good("POST", "/finished_job", finished(job, cluster_id="another"))
            assert (ended["believed"], await w.state(job)) == (False, "assigned")
            await w.good("POST", "/node/n1/report", report(launched(job), cluster_id=ours))
            assert await w.state(job) == "launching"
            assert (await w.good("POST", "/finished_job", finished(job, cluster_id=ours)))["believed"] is True
