"""The event loop serves everybody: it never waits for the store, which may be as far away as the network is long."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from colane.server import main
from colane.server.board.slices import SLICE_JOBS_MAX
from colane.server.board.turn import Turn
from colane.server.config import ServerConfig
from colane.server.store.store import AuditLine, Document, StoreWriter, Transaction
from colane.server.writer import driver
from colane.server.writer.ledger import LedgerEntry, compose
from tests.memory_store import MemoryStore
from tests.server.harness import SLEEP, World, finished, launched, node, report, world


class ThreadsOnlyStore(MemoryStore):
    """Notes which of its methods were called in the thread of the event loop, beside those that are memory alone."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread: int | None = None
        self.waited: list[str] = []

    def _note_thread(self, name: str) -> None:
        if threading.get_ident() == self.loop_thread:
            self.waited.append(name)

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        self._note_thread("commit")
        return super().commit(transaction, writer)

    def get(self, collection: str, key: str) -> Document | None:
        self._note_thread(f"get {collection}")
        return super().get(collection, key)

    def count(self, collection: str) -> int:
        self._note_thread(f"count {collection}")
        return super().count(collection)

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        self._note_thread(f"read_all {collection}")
        return super().read_all(collection)

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        self._note_thread(f"page {collection}")
        return super().page(collection, after, limit)

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        self._note_thread(f"page_back {collection}")
        return super().page_back(collection, before, limit, containing)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        self._note_thread("audit")
        return super().audit(after, limit)

    def last_audit_number(self) -> int:
        self._note_thread("last_audit_number")
        return super().last_audit_number()

    def version(self) -> int:
        self._note_thread("version")
        return super().version()


@pytest.fixture
async def w() -> AsyncIterator[World]:
    store = ThreadsOnlyStore()
    async with world(store) as made:
        store.loop_thread = threading.get_ident()
        yield made
        assert store.waited == []


async def ended(w: World) -> int:
    """A job that has ended, and what was learnt of it."""
    await w.good("POST", "/node", node())
    job = await w.submit(family="f", user="root")
    await w.good("POST", "/node/n1/report", report(launched(job)))
    await w.good("POST", "/finished_job", finished(job))
    return job


async def test_a_submission_and_its_repeat(w: World) -> None:
    for _ in range(2):
        assert (await w.post("/job", SLEEP, **{"Idempotency-Key": "k"})).json() == {"id": 1}
    assert (await w.post("/jobs", [SLEEP], **{"Idempotency-Key": "k"})).status_code == 422


async def test_a_job_that_waits_for_one_that_has_ended(w: World) -> None:
    assert await ended(w) == 1
    assert await w.submit(after="ok:1") == 2
    assert await w.submit(after="any:@~1") == 3
    assert (await w.refused("POST", "/job", {**SLEEP, "after": "fail:1"}))[0] == 422


async def test_a_batch_whose_jobs_wait_for_many_that_have_ended(w: World) -> None:
    for _ in range(6):
        await ended(w)
    batch = [{**SLEEP, "after": f"ok:{job}"} for job in range(1, 7)]
    assert (await w.good("POST", "/jobs", batch)) == {"ids": [7, 8, 9, 10, 11, 12]}


async def test_deeds_on_a_job_that_has_ended(w: World) -> None:
    job = await ended(w)
    for method, path in (("DELETE", ""), ("POST", "/requeue"), ("POST", "/suspend"), ("POST", "/resume")):
        assert (await w.refused(method, f"/job/{job}{path}", {} if path else None))[0] == 409, path


async def test_what_is_learnt_is_shown_and_forgotten(w: World) -> None:
    await ended(w)
    await w.good("PUT", "/profiles", {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.5})
    for path in ("/profiles", "/measurements"):
        await w.good("GET", path)
    assert (await w.good("DELETE", "/profiles?family=f"))["forgotten"] >= 1


async def test_what_is_shown_of_jobs(w: World) -> None:
    job = await ended(w)
    await w.submit()
    paths = ("/jobs", "/live_jobs", "/finished_jobs", "/listing?ended=true", "/usage", f"/job/{job}", f"/job/{job}/why")
    for path in (*paths, "/job/2", "/job/2/why", "/job/2/launch", "/health"):
        await w.good("GET", path)


async def test_a_commit_that_fails_and_what_is_read_anew(w: World) -> None:
    store = w.service.store
    assert isinstance(store, MemoryStore)
    await ended(w)
    store.failure = "no space"
    assert (await w.refused("POST", "/job", SLEEP))[0] == 503
    store.failure = None
    assert await w.submit() == 2


@pytest.mark.parametrize("jobs", [SLICE_JOBS_MAX, SLICE_JOBS_MAX + 1])
async def test_of_a_large_batch_what_is_written_at_once_is_composed_beside_the_loop(
    w: World, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """The whole of it; then its parts enter, each small enough for the loop."""
    threads: list[tuple[bool, bool]] = []

    def composed(turn: Turn, *given: Any) -> LedgerEntry:
        threads.append((bool(turn.slices), threading.get_ident() == on_the_loop))
        return compose(turn, *given)

    on_the_loop = threading.get_ident()
    monkeypatch.setattr(driver, "compose", composed)
    assert len((await w.good("POST", "/jobs", [SLEEP] * jobs))["ids"]) == jobs
    parts = [(False, True), (False, True)]
    assert threads == (parts[:1] if jobs <= SLICE_JOBS_MAX else [(True, False), *parts])


async def test_a_large_batch_that_cannot_be_written_down_is_refused_and_the_others_go_on(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def composed(turn: Turn, *given: Any) -> LedgerEntry:
        if turn.slices:
            raise ValueError("of no form")
        return compose(turn, *given)

    monkeypatch.setattr(driver, "compose", composed)
    batch = [SLEEP] * (SLICE_JOBS_MAX + 1)
    assert (await w.http.post("/jobs", json=batch)).status_code == 500
    assert await w.submit() == 1


def test_other_threads_give_way_to_the_loop_within_a_millisecond(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of its waits for the thread that writes a commit down lasts as long as Python's lock is held at most."""
    seen: list[float] = []
    served_by(lambda: seen.append(sys.getswitchinterval()), monkeypatch, tmp_path)
    assert seen
    assert seen[0] <= 0.001


def test_no_collection_looks_at_all_jobs_while_it_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With 8,000 live jobs that takes half a second, in which no request is answered."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.extend([info["generation"]] if phase == "start" else [])

    def live_on() -> None:
        gc.callbacks.append(note)
        kept: list[list[int]] = [[] for _ in range(12 * main.OBJECTS_PER_COLLECTION)]
        gc.callbacks.remove(note)
        assert kept

    served_by(live_on, monkeypatch, tmp_path)
    assert len(seen) > 10
    assert set(seen) == {0}


def served_by(doing: Callable[[], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Do something in place of serving, with the interpreter set as it is for that."""

    async def serve(*_: object) -> None:
        doing()

    before_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    monkeypatch.setattr(main, "serve", serve)
    try:
        main.run_server(ServerConfig(state_dir=tmp_path))
    finally:
        sys.setswitchinterval(before_s)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
