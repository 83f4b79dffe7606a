"""A commit whose outcome is not known, as over a network: made, never made, or made after the store was read anew."""

from __future__ import annotations

import pytest

from colane.server.store.store import ConflictError, StoreError, StoreWriter, Transaction
from tests.memory_store import MemoryStore
from tests.server.harness import SLEEP, world


class LateStore(MemoryStore):
    """Fails to commit while it is told to, and makes the commit when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.held: list[tuple[Transaction, StoreWriter | None]] = []

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        if self.is_slow:
            self.held += [(transaction, writer)] if transaction.audit else []
            raise StoreError("the connection broke")
        return super().commit(transaction, writer)

    def deliver(self) -> None:
        """Make what was held now."""
        for transaction, writer in self.held:
            super().commit(transaction, writer)


async def test_a_late_commit_is_found_by_the_next_one_and_its_answer_is_given_to_the_repeat() -> None:
    store = LateStore()
    async with world(store) as w:
        store.is_slow = True
        first = await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})
        assert first.status_code == 503
        assert await w.good("GET", "/live_jobs") == [], "the core was rebuilt from a store without it"
        store.is_slow = False
        store.deliver()
        refused = await w.post("/job", {**SLEEP, "name": "theirs"}, **{"Idempotency-Key": "theirs"})
        assert refused.status_code == 503, refused.text
        assert "it is read anew" in refused.text
        mine = await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})
        theirs = await w.post("/job", {**SLEEP, "name": "theirs"}, **{"Idempotency-Key": "theirs"})
        assert (mine.json(), theirs.json()) == ({"id": 1}, {"id": 2})
        assert [job["name"] for job in await w.good("GET", "/live_jobs")] == ["mine", "theirs"]


async def test_one_that_comes_after_the_next_was_made_changes_nothing() -> None:
    store = LateStore()
    async with world(store) as w:
        store.is_slow = True
        assert (await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})).status_code == 503
        store.is_slow = False
        theirs = await w.post("/job", {**SLEEP, "name": "theirs"}, **{"Idempotency-Key": "theirs"})
        with pytest.raises(ConflictError):
            store.deliver()
        mine = await w.post("/job", {**SLEEP, "name": "mine"}, **{"Idempotency-Key": "mine"})
        assert (theirs.json(), mine.json()) == ({"id": 1}, {"id": 2})
        assert [job["name"] for job in await w.good("GET", "/live_jobs")] == ["theirs", "mine"]


async def test_a_store_that_has_gone_back_is_not_believed() -> None:
    store = MemoryStore()
    async with world(store) as w:
        assert await w.submit() == 1
        store._version = 0
        status, detail = await w.refused("POST", "/job", SLEEP)
        assert status == 503
        status, detail = await w.refused("POST", "/job", SLEEP)
        assert (status, "gone back from version 1 to 0" in str(detail)) == (503, True), detail
        assert (await w.http.get("/health")).json()["status"] == "store-unavailable"
