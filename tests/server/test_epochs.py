"""Starts of schedulers on a store: one writes, and what agents have heard is held against what the store knows."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.server.config import ServerConfig
from colane.server.main import ServerError, serve
from colane.server.store import identity
from colane.server.store.identity import History, begin_epoch
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import EPOCHS, AuditEntry, StoreError, StoreWriter, SupersededError, Transaction
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.server.harness import DEADLINE_S, SLEEP, World, finished, launched, node, report, world

AGENTS = {"n1": "a1", "n2": "a2"}
MADE_UP: tuple[dict[str, Any], ...] = (
    {"events_seen": 2**52},
    {"epoch": None, "events_seen": 2**52},
    {"epoch": {"number": 1, "id": "made up"}},
    {"epoch": {"number": 77, "id": "made up"}, "events_seen": 0},
)


async def heard(w: World, name: str = "n1") -> dict[str, Any]:
    """What the agent of a node has heard, as it reports it."""
    told = await w.good("GET", f"/node/{name}")
    return {"cluster_id": told["cluster_id"], "epoch": told["epoch"], "events_seen": told["events"]}


async def answer(w: World, known: dict[str, Any], *jobs: dict[str, Any], name: str = "n1") -> dict[str, Any]:
    """Report what is known, and hear again."""
    await w.good("POST", f"/node/{name}/report", report(*jobs, agent_id=AGENTS[name], **known))
    return await heard(w, name)


async def two_nodes(w: World) -> None:
    for name, agent_id in AGENTS.items():
        await w.good("POST", "/node", node(name, agent_id=agent_id))


def copied(store: MemoryStore) -> MemoryStore:
    """A copy as one made with `colane backup`, or by hand."""
    made = MemoryStore()
    made._collections, made._audit = copy.deepcopy(store._collections), list(store._audit)
    return made


def kinds(w: World) -> list[str]:
    return [line.kind for line in w.service.store.audit(0, 10_000)]


class TestTwoSchedulers:
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[list[SqliteStore]]:
        """The same one, twice."""
        stores = [SqliteStore(tmp_path / "colane.db") for _ in range(2)]
        yield stores
        for store in stores:
            store.close()

    async def test_the_older_one_is_refused_and_ends_with_a_sentence(self, stores: list[SqliteStore]) -> None:
        async def both() -> None:
            async with world(stores[0]) as older, world(stores[1]) as newer:
                assert await newer.submit() == 1
                assert (await older.refused("POST", "/job", SLEEP))[0] == 503
                assert await newer.submit() == 2
                assert (await older.refused("POST", "/job", SLEEP))[0] == 503, "it does not come back"
                assert (await older.good("GET", "/health"))["cluster_id"] == newer.service.history.cluster_id

        with pytest.raises(SupersededError, match=r"another scheduler has started on this store \(epoch 2, this one"):
            await both()

    async def test_it_ends_when_an_agent_has_followed_the_newer_one(self, stores: list[SqliteStore]) -> None:
        async def both() -> None:
            async with world(stores[0]) as older:
                await two_nodes(older)
                async with world(stores[1]) as newer:
                    known = await heard(newer)
                    assert (await older.refused("POST", "/node/n1/report", report(**known)))[0] == 503
                    assert await answer(newer, known) == known, "it is no other cluster for that"

        with pytest.raises(SupersededError):
            await both()

    def test_at_the_start_it_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def draw(*_: Any, **__: Any) -> History:
            raise SupersededError("another scheduler has started on this store")

        monkeypatch.setattr("colane.server.assembly.begin_epoch", draw)
        with pytest.raises(ServerError, match="state: another scheduler has started on this store"):
            asyncio.run(serve(ServerConfig(state_dir=tmp_path / "state", port=0)))


async def test_a_commit_that_is_durable_though_its_answer_was_an_error_is_read_anew() -> None:
    class LyingStore(MemoryStore):
        lies = False

        def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
            number = super().commit(transaction, writer)
            if self.lies and transaction.audit:
                self.lies = False
                raise StoreError("input/output error")
            return number

    store = LyingStore()
    async with world(store) as w:
        store.lies = True
        assert (await w.refused("POST", "/job", SLEEP))[0] == 503
        assert [job["id"] for job in await w.good("GET", "/jobs")] == [1], "it was durable"
        assert await w.submit() == 2
        last, numbers = store.last_audit_number(), []
        async with asyncio.timeout(DEADLINE_S):
            async for line in w.service.feed.follow(0):
                numbers.append(line.number)
                if line.number == last:
                    break
        assert numbers == list(range(1, last + 1))


async def test_after_a_restart_agents_are_known() -> None:
    store = MemoryStore()
    async with world(store) as w:
        await two_nodes(w)
        job = await w.submit()
        known = await heard(w)
    for _ in range(2):
        async with world(store) as w:
            again = await answer(w, known, launched(job))
            assert again["cluster_id"] == known["cluster_id"]
            assert again["epoch"]["number"] == known["epoch"]["number"] + 1
            known = again
            assert await w.state(job) == "launching"


class TestACopyPutBack:
    @pytest.mark.parametrize("more", [0, 30], ids=["nothing-since", "more-than-the-agent-knew"])
    @pytest.mark.parametrize("restarted", [False, True], ids=["same-start", "another-start"])
    async def test_concerns_those_that_have_heard_of_more(self, more: int, restarted: bool) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            job = await w.submit()
            away = await heard(w, "n2")
            kept = copied(store)
            known = away
            if not restarted:
                await w.submit()
                known = await heard(w)
        if restarted:
            async with world(store) as w:
                await w.submit()
                known = await heard(w)
        assert known["events_seen"] > away["events_seen"]

        async with world(kept) as w:
            for _ in range(more):
                await w.submit()
            assert (w.service.feed.last_number > known["events_seen"]) == bool(more)
            told = await answer(w, known, launched(job))
            assert told["cluster_id"] != known["cluster_id"]
            assert kinds(w).count("node-set-apart") == 1
            assert await w.state(job) == "assigned", "it is another job of that number"
            ended = finished(job, cluster_id=known["cluster_id"])
            assert (await w.good("POST", "/finished_job", ended))["believed"] is False
            assert (await answer(w, known))["cluster_id"] == told["cluster_id"], "told again, it stays that"
            assert (await answer(w, away, name="n2"))["cluster_id"] == away["cluster_id"], "n2 knew no more"
            assert (await w.good("GET", "/health"))["cluster_id"] == away["cluster_id"]
            told = await answer(w, told, launched(job))
            assert await w.state(job) == "launching"

        async with world(kept) as w:
            assert (await answer(w, told, launched(job)))["cluster_id"] == told["cluster_id"], "also after a restart"
            assert kinds(w).count("node-set-apart") == 1
            ended = finished(job, cluster_id=told["cluster_id"])
            assert (await w.good("POST", "/finished_job", ended))["believed"] is True

    async def test_an_end_that_is_told_before_anything_else_is_not_taken_for_that_of_another_job(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            kept = copied(store)
            job = await w.submit(name="before")
            known = await heard(w)
        async with world(kept) as w:
            assert await w.submit(name="another of its number") == job
            status, said = await w.refused("POST", "/finished_job", finished(job, **known))
            assert (status, "it has to report first" in said) == (409, True), (
                "an answer would be heard as of its history"
            )
            assert await w.state(job) == "assigned"
            assert (await answer(w, known))["cluster_id"] != known["cluster_id"], "so it is still found by its report"

    async def test_an_end_that_is_known_is_known_to_have_been_told(self) -> None:
        """Its agent does not look after the job any more, so a copy from before the end is not of its history."""
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            job = await w.submit()
            known = await heard(w)
            kept = copied(store)
            told = await w.good("POST", "/finished_job", finished(job, **known))
            assert told.pop("believed") is True
            known = {"cluster_id": told["cluster_id"], "epoch": told["epoch"], "events_seen": told["events"]}
        async with world(kept) as w:
            assert (await answer(w, known))["cluster_id"] != known["cluster_id"]

    async def test_is_found_by_what_an_older_agent_counts(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            kept = copied(store)
            await w.submit()
            known = {**await heard(w), "epoch": None}
        async with world(kept) as w:
            assert (await answer(w, known))["cluster_id"] != known["cluster_id"]

    async def test_both_copies_may_be_tried_in_turn(self) -> None:
        """An operator who is not sure puts one back, then the other."""
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            known = await heard(w)
        kept = copied(store)
        seen = [known["cluster_id"]]
        for one in (store, kept, store, kept):
            async with world(one) as w:
                await w.submit()
                known = await answer(w, known)
                seen.append(known["cluster_id"])
        assert len(set(seen)) == 2, seen


class TestLiars:
    @pytest.mark.parametrize("claim", MADE_UP, ids=str)
    async def test_end_nothing_but_their_own(self, claim: dict[str, Any]) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await two_nodes(w)
            jobs = [await w.submit(), await w.submit()]
            truth = {name: await heard(w, name) for name in AGENTS}
            for name, job in zip(AGENTS, jobs, strict=True):
                await answer(w, truth[name], launched(job), name=name)
            before = (await w.good("GET", "/health"))["cluster_id"]
            for _ in range(3):
                await answer(w, {**truth["n1"], **claim})
            assert kinds(w).count("node-set-apart") == 1
            assert (await w.good("GET", "/health"))["cluster_id"] == before
            assert (await answer(w, truth["n2"], launched(jobs[1]), name="n2"))["cluster_id"] == before
            assert await w.state(jobs[1]) == "launching"
            ended = finished(jobs[1], node="n2", agent_id="a2", cluster_id=before)
            assert (await w.good("POST", "/finished_job", ended))["believed"] is True

    async def test_another_agent_of_the_name_is_not_heard(self) -> None:
        async with world() as w:
            await two_nodes(w)
            known = await heard(w)
            body = report(agent_id="another", **{**known, "events_seen": 2**52})
            assert (await w.refused("POST", "/node/n1/report", body))[0] == 409
            assert await heard(w) == known


async def test_epochs_that_are_long_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "EPOCHS_MAX", 3)
    store = MemoryStore()
    drawn = [begin_epoch(store, 1.0).current for _ in range(6)]
    assert [epoch.number for epoch in drawn] == [1, 2, 3, 4, 5, 6]
    assert store.count(EPOCHS) == 3
    assert begin_epoch(store, 1.0).epochs.keys() == {5, 6, 7}


@dataclass
class Branch:
    """A store, its scheduler's history, and what really happened on it."""

    store: MemoryStore = field(default_factory=MemoryStore)
    history: History | None = None
    events: tuple[int, ...] = ()
    starts: frozenset[str] = frozenset()

    def start(self) -> None:
        self.history = begin_epoch(self.store, 0.0)
        self.starts |= {self.history.current.id}

    def go_on(self, event: int) -> None:
        assert self.history is not None
        writer = StoreWriter(self.history.current.number, len(self.events))
        self.store.commit(Transaction(audit=[AuditEntry(0.0, "job", {})]), writer)
        self.events += (event,)

    def copied(self) -> Branch:
        made = Branch(copied(self.store), None, self.events, self.starts)
        made.start()
        return made


@given(st.integers(0, 2**32))
@examples(200)
def test_an_agent_is_ours_where_all_that_it_heard_has_happened_here(seed: int) -> None:
    """Whatever was copied, put back and started: compared with what really happened, one event by one."""
    rng, branches = Random(seed), [Branch()]
    branches[0].start()
    told: list[tuple[Any, int, tuple[int, ...]]] = []
    for step in range(60):
        branch = rng.choice(branches)
        assert branch.history is not None
        deed = rng.choice(("event", "event", "start", "copy", "tell", "tell"))
        if deed == "event":
            branch.go_on(step)
        elif deed == "start":
            branch.start()
        elif deed == "copy":
            branches.append(branch.copied())
        else:
            told.append((branch.history.current, len(branch.events), branch.events))
    for branch in branches:
        assert branch.history is not None
        for epoch, count, events in told:
            happened = epoch.id in branch.starts and branch.events[:count] == events
            assert branch.history.has(epoch.number, epoch.id, count, len(branch.events)) == happened
