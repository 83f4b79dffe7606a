"""Nothing runs ahead of the store: failures, restarts, and what the events tell."""

from __future__ import annotations

import asyncio
import json
from math import inf
from pathlib import Path
from typing import Any

import httpx
import pytest

from colane.core.policy import Policy
from colane.model.hardware import GpuId
from colane.model.placement import Placement, Slot, Turns
from colane.model.plan import Plan, Start
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why
from colane.scheduling import registry
from colane.server.assembly import make_service
from colane.server.board.clock import Clocks
from colane.server.config import ServiceConfig
from colane.server.ground.job_tokens import new_key
from colane.server.http.app import create_app
from colane.server.http.streams import json_list
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import (
    IDEMPOTENCY,
    SUBMITTED_JOBS,
    AuditEntry,
    Put,
    Store,
    StoreError,
    StoreWriter,
    Transaction,
)
from colane.server.writer.feed import RECENT_LINES_MAX, WOKEN_AT_ONCE, Feed
from colane.server.writer.idempotency import KEPT_S, expired
from tests.memory_store import MemoryStore
from tests.server.answers import lasting
from tests.server.harness import (
    DEADLINE_S,
    OPERATOR,
    SLEEP,
    CountingStore,
    SteadyClock,
    World,
    finished,
    launched,
    node,
    report,
    rules_of,
    world,
)


def stepped(job: int, steps: int, last_s: float) -> Any:
    progress = {"at_s": last_s, "steps": steps, "first_step_s": 1.0, "last_step_s": last_s}
    return launched(job, start_s=0.0, progress=progress)


class UnreadableStore(MemoryStore):
    """A store whose documents cannot be read while `is_unreadable`."""

    is_unreadable = False

    def read_all(self, collection: str) -> Any:
        if self.is_unreadable:
            raise StoreError("cannot be read: input/output error")
        return super().read_all(collection)


class TestFailure:
    async def test_a_failed_write_is_503_and_leaves_no_trace(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await w.good("POST", "/node", node())
            await w.submit()
            before = [lasting((await w.http.get(path)).json()) for path in ("/live_jobs", "/node/n1")]
            told, w.agents.nudged[:] = w.service.feed.last_number, []
            store.failure = "no space left on device"
            for method, path, body in (
                ("POST", "/job", SLEEP),
                ("POST", "/jobs", [SLEEP]),
                ("DELETE", "/job/1", None),
                ("POST", "/node", node("n2", agent_id="a2")),
                ("POST", "/finished_job", finished(1)),
                ("POST", "/node/n1/report", report(launched(1))),
            ):
                answer = await w.http.request(method, path, json=body)
                assert (answer.status_code, answer.json()["detail"]) == (503, "no space left on device")
                assert answer.headers["Retry-After"]
            after = [lasting((await w.http.get(path)).json()) for path in ("/live_jobs", "/node/n1")]
            after[1]["last_seen_s"] = before[1]["last_seen_s"]
            assert after == before
            assert (w.service.feed.last_number, w.agents.nudged) == (told, [])
            store.failure = None
            assert await w.submit() == 2
            assert (await w.good("POST", "/finished_job", finished(1)))["believed"] is True
            assert [await w.state(1), await w.state(2)] == ["succeeded", "assigned"]

    async def test_all_who_waited_for_one_commit_hear_of_its_failure(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            store.failure = "full"
            answers = await asyncio.gather(*(w.post("/job", SLEEP) for _ in range(20)))
            assert {answer.status_code for answer in answers} == {503}
            store.failure = None
            assert await w.submit() == 1

    async def test_a_store_that_cannot_be_read_either(self) -> None:
        store = UnreadableStore()
        async with world(store, tick_s=0.01) as w:
            await w.submit()
            store.failure, store.is_unreadable = "gone", True
            assert (await w.refused("POST", "/job", SLEEP))[0] == 503
            assert (await w.refused("POST", "/job", SLEEP))[0] == 503
            health = await w.http.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "store-unavailable")
            assert (await w.refused("GET", "/job/1/why"))[0] == 503
            assert await w.state(1) == "queued"
            store.failure, store.is_unreadable = None, False
            async with asyncio.timeout(DEADLINE_S):
                while (await w.http.post("/job", json=SLEEP)).status_code == 503:
                    await asyncio.to_thread(lambda: None)
            assert (await w.good("GET", "/health"))["status"] == "ok"

    async def test_an_answer_only_comes_after_the_commit(self) -> None:
        class SlowStore(MemoryStore):
            def __init__(self) -> None:
                super().__init__()
                self.is_slow = False
                self.entered, self.go = asyncio.Event(), asyncio.Event()

            def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
                if self.is_slow:
                    loop.call_soon_threadsafe(self.entered.set)
                    asyncio.run_coroutine_threadsafe(self.go.wait(), loop).result(DEADLINE_S)
                return super().commit(transaction, writer)

        loop = asyncio.get_running_loop()
        store = SlowStore()
        async with world(store) as w:
            store.is_slow = True
            posting = asyncio.create_task(w.post("/job", SLEEP))
            async with asyncio.timeout(DEADLINE_S):
                await store.entered.wait()
            assert await w.good("GET", "/live_jobs") == []
            assert not posting.done()
            store.go.set()
            assert (await posting).json() == {"id": 1}
            assert len(await w.good("GET", "/live_jobs")) == 1


class TestRestart:
    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    async def test_what_was_learnt_of_neighbours_is_known_after_it(self, kind: str, tmp_path: Path) -> None:
        def opened() -> Store:
            return kept if kind == "memory" else SqliteStore(tmp_path / "colane.db")

        kept = MemoryStore()
        store = opened()
        a, b = (ProfileKey(family, None, 1, "cpu") for family in "ab")
        clock = SteadyClock()

        async def say(w: World, at_s: float, *jobs: dict[str, Any]) -> None:
            clock.skip(at_s - clock.now_s)
            await w.good("POST", "/node/n1/report", report(*jobs, at_s=at_s))

        async with world(store, clocks=Clocks(wall=lambda: clock.now_s, steady=clock)) as w:
            await w.good("POST", "/node", node(gpus=2))
            await w.submit(family="a")
            for steps in (1, 2, 22):
                await say(w, float(steps), stepped(1, steps, float(steps)))
            await w.submit(family="b")
            for steps in (1, 2, 32):
                await say(
                    w, 22.0 + 2 * steps, stepped(1, 22 + steps, 22.0 + 2 * steps), stepped(2, steps, 22.0 + steps)
                )
            await w.good("POST", "/finished_job", finished(2))
            await say(w, 87.0, stepped(1, 55, 87.0))
            learnt = await w.good("GET", "/profiles")
            assert w.service.driver.core.state.beliefs.neighbours.slowdown(a, b) == 2.0
        if kind == "sqlite":
            store.close()
        async with world(opened()) as w:
            neighbours = w.service.driver.core.state.beliefs.neighbours
            assert (neighbours.slowdown(a, b), neighbours.knows(b, a)) == (2.0, False)
            assert await w.good("GET", "/profiles") == learnt

    async def test_everything_is_as_it_was(self, tmp_path: Path) -> None:
        shown = ("/live_jobs", "/jobs", "/node/n1", "/nodes", "/finished_jobs", "/profiles", "/measurements")
        key = new_key()
        store: Store = SqliteStore(tmp_path / "colane.db")
        async with world(store, job_key=key) as w:
            await w.good("POST", "/node", node(gpus=2))
            await w.good("PUT", "/profiles", {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.5})
            await w.good("POST", "/jobs", [{**SLEEP, "labels": {"n": str(n)}} for n in range(5)])
            await w.post("/job", {"model_name": "vgg11", "dataset": "synthetic"}, **{"Idempotency-Key": "k"})
            await w.good("POST", "/node/n1/report", report(launched(1)))
            await w.good("POST", "/finished_job", finished(2))
            before = [lasting(await w.good("GET", path)) for path in shown]
            launch = await w.good("GET", "/job/3/launch")
        store.close()
        store = SqliteStore(tmp_path / "colane.db")
        async with world(store, job_key=key) as w:
            after = [lasting(await w.good("GET", path)) for path in shown]
            assert after[2].pop("last_seen_s") is None
            before[2].pop("last_seen_s")
            for old, new in ((before[2], after[2]), (before[3][0], after[3][0])):
                assert new.pop("epoch")["number"] == old.pop("epoch")["number"] + 1
            before[3][0]["last_seen_s"] = None
            assert after == before
            assert await w.good("GET", "/job/3/launch") == launch
            again = await w.post("/job", {"model_name": "vgg11", "dataset": "synthetic"}, **{"Idempotency-Key": "k"})
            assert again.json() == {"id": 6}
            assert await w.submit() == 7
            assert (await w.good("POST", "/finished_job", finished(1)))["believed"] is True
            assert await w.state(4) == "assigned"
            assert (await w.good("GET", "/node/n1"))["generation"] > before[2]["generation"]
        store.close()

    async def test_agents_are_nudged_at_the_start(self) -> None:
        store = MemoryStore()
        async with world(store) as w:
            await w.good("POST", "/node", node())
        async with world(store) as w, asyncio.timeout(DEADLINE_S):
            await w.agents.changed.wait()
            assert w.agents.nudged == ["n1"]

    async def test_a_lost_node_stays_lost(self) -> None:
        store = MemoryStore()
        clock = SteadyClock(step_s=1.0)
        async with world(store, clocks=Clocks(steady=clock), tick_s=0.01) as w:
            await w.good("POST", "/node", node(replaced=True))
            clock.go_on(w.service.config.node_timeout_s + 1)
            await w.line(lambda line: line.kind == "node-lost")
        async with world(store) as w:
            assert (await w.good("GET", "/node/n1"))["lost"] is True
            await w.submit()
            assert await w.state(1) == "queued"


class TestEvents:
    async def test_every_change_in_order_and_resumed(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            await w.good("POST", "/finished_job", finished(1))
            lines = [line async for line in first(w.service.feed, w.service.feed.last_number)]
            assert [line.number for line in lines] == list(range(1, len(lines) + 1))
            moves = [line.body["state"] for line in lines if line.kind == "job"]
            assert moves == ["queued", "assigned", "succeeded"]
            assert {"node-registered", "decision", "attempt-ended"} < {line.kind for line in lines}
            rest = [line async for line in first(w.service.feed, 2, after=len(lines) - 2)]
            assert rest == lines[-2:]

    async def test_what_memory_has_forgotten_comes_from_the_store(self) -> None:
        store = MemoryStore()
        feed = Feed(store)
        for number in range(RECENT_LINES_MAX + 10):
            entry = AuditEntry(0.0, "job", {"n": number})
            feed.publish(store.commit(Transaction(audit=[entry])), [entry])
        lines = [line async for line in first(feed, RECENT_LINES_MAX + 10)]
        assert [line.body["n"] for line in lines] == list(range(RECENT_LINES_MAX + 10))

    async def test_what_is_durable_and_not_on_the_board_yet_is_told_once_it_is(self) -> None:
        """Whoever heard of a change and asks for it must find it."""
        store, entry = MemoryStore(), AuditEntry(0.0, "job", {})
        store.commit(Transaction(audit=[entry]))
        feed = Feed(store)
        second = store.commit(Transaction(audit=[entry]))
        told = feed.batches(0)
        assert [line.number for line in await anext(told)] == [1]
        feed.publish(second, [entry])
        assert [line.number for line in await anext(told)] == [2]

    async def test_a_follower_waits_for_more_and_ends_when_the_feed_closes(self) -> None:
        store = MemoryStore()
        feed = Feed(store)
        seen: asyncio.Queue[int] = asyncio.Queue()

        async def follow() -> None:
            async for line in feed.follow(0):
                seen.put_nowait(line.number)

        following = asyncio.create_task(follow())
        for number in (1, 2, 3):
            entry = AuditEntry(0.0, "job", {})
            feed.publish(store.commit(Transaction(audit=[entry])), [entry])
            async with asyncio.timeout(DEADLINE_S):
                assert await seen.get() == number
        feed.close()
        async with asyncio.timeout(DEADLINE_S):
            await following

    async def test_a_thousand_followers_keep_no_request_waiting(self) -> None:
        """Whoever else has something to do gets his turn after a few of them, however many there are."""
        store = MemoryStore()
        feed, seen, most, last = Feed(store), 0, 0, 0

        async def follow() -> None:
            nonlocal seen
            async for _ in feed.follow(0):
                seen += 1

        following = [asyncio.create_task(follow()) for _ in range(1000)]
        await asyncio.sleep(0)
        entry = AuditEntry(0.0, "job", {})
        feed.publish(store.commit(Transaction(audit=[entry])), [entry])
        async with asyncio.timeout(DEADLINE_S):
            while seen < len(following):
                await asyncio.sleep(0)
                most, last = max(most, seen - last), seen
        assert most <= WOKEN_AT_ONCE
        feed.close()
        await asyncio.gather(*following)

    async def test_a_follower_that_has_gone_is_forgotten(self) -> None:
        feed = Feed(MemoryStore())

        async def follow() -> None:
            async for _ in feed.follow(0):
                raise AssertionError("there is nothing to read")

        following = asyncio.create_task(follow())
        await asyncio.sleep(0)
        following.cancel()
        await asyncio.wait({following})
        assert not feed._waiting

    async def test_a_wrong_resume_point_is_refused(self) -> None:
        async with world() as w:
            assert (await w.refused("GET", "/events", **{"Last-Event-ID": "soon"}))[0] == 422


async def first(feed: Feed, count: int, after: int = 0) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        async for line in feed.follow(after):
            yield line
            count -= 1
            if count == 0:
                return


class TestRejectedPlan:
    async def test_evidence_is_kept_and_nothing_changes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Greedy:
            name = "greedy"
            turns = Turns()
            min_runtime_before_preemption_s = inf

            def plan(self, view: Any) -> Plan:
                there = Placement((Slot(GpuId("n1", 7), 0),))
                return Plan(view.version, tuple(Start(job, there, Reason(Why.FREE_GPU)) for job in view.jobs))

        made: Policy = Greedy()
        monkeypatch.setattr(registry, "for_service", lambda _: made)
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            line = await w.line(lambda line: line.kind == "rejected-plan")
            assert line.body["flaws"]
            assert line.body["actions"][0]["placement"]["slots"] == [["n1", 7, 0]]
            assert await w.state(1) == "queued"


async def test_a_policy_that_fails_costs_the_submissions_it_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"
        turns = Turns()
        min_runtime_before_preemption_s = inf

        def plan(self, _view: Any) -> Any:
            raise RuntimeError("a bug")

    monkeypatch.setattr(registry, "for_service", lambda _: Broken())
    service = make_service(MemoryStore(), ServiceConfig(policy="x", workdir="/"))
    driving = asyncio.create_task(service.run())
    transport = httpx.ASGITransport(create_app(service, rules_of(service)))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=OPERATOR) as http:
        async with asyncio.timeout(DEADLINE_S):
            answers = await asyncio.gather(*(http.post("/job", json=SLEEP) for _ in range(3)))
            assert {answer.status_code for answer in answers} == {500}
            assert all("RuntimeError" in answer.json()["detail"] for answer in answers)
        assert (await http.get("/health")).status_code == 200
        service.stop()
        await driving
        assert (await http.post("/job", json=SLEEP)).status_code == 503
    assert service.store.count(SUBMITTED_JOBS) == 0


async def test_old_idempotency_keys_are_removed() -> None:
    store = CountingStore()
    puts = [Put(IDEMPOTENCY, f"k{n}", {"at_s": float(n)}) for n in range(3_000)]
    store.commit(Transaction(puts))
    for transaction in expired(store, KEPT_S + 2_500):
        store.commit(transaction)
    assert [body["at_s"] for _, body in store.read_all(IDEMPOTENCY)] == [float(n) for n in range(2_500, 3_000)]


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_000])
def test_a_list_in_pieces_is_one_json_list(count: int) -> None:
    items = [{"n": number} for number in range(count)]
    assert json.loads(b"".join(json_list(items))) == items
