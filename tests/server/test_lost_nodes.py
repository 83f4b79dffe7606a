"""Nodes that fall silent, the leases of their agents, and nodes that cannot start what they are given."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from colane.listening.standing import STANDING, Standing
from colane.model.job import JobId
from colane.server.board.clock import Clocks
from colane.server.board.read_model import ReadModel, read_board
from colane.server.nodes import liveness as leases
from colane.server.store.identity import GRANTED_BEFORE_S, GRANTED_KEY, begin_epoch
from colane.server.store.store import META, StoreWriter, Transaction
from colane.server.writer import driver
from tests.memory_store import MemoryStore
from tests.server.harness import (
    DEADLINE_S,
    OPERATOR,
    SteadyClock,
    finished,
    gpu,
    launched,
    node,
    report,
    world,
)

NODE_TIMEOUT_S = 5.0


def silent_world(clock: SteadyClock, **settings: Any) -> Any:
    return world(clocks=Clocks(steady=clock), node_timeout_s=NODE_TIMEOUT_S, tick_s=0.01, **settings)


class WatchedStore(MemoryStore):
    """Counts lines of a kind in each commit; one that has any waits until it may go on."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.counts = kind, list[int]()
        self.has_begun, self.goes_on = threading.Event(), threading.Event()

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        if count := sum(entry.kind == self.kind for entry in transaction.audit):
            self.counts.append(count)
            self.has_begun.set()
            assert self.goes_on.wait(DEADLINE_S)
        return super().commit(transaction, writer)


class TestLost:
    async def test_a_lost_node_may_be_taken_over(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await w.good("POST", "/node", node(replaced=True))
            clock.go_on(NODE_TIMEOUT_S + 1)
            await w.line(lambda line: line.kind == "node-lost")
            assert (await w.good("POST", "/node", node(agent_id="a2")))["lost"] is False
            assert (await w.refused("POST", "/node/n1/report", report()))[0] == 409

    async def test_jobs_of_a_silent_node_are_queued_again(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await self.lose(w, clock)
            lost = await w.good("GET", "/node/n1")
            assert (lost["lost"], lost["jobs"]) == (True, [])
            job = await w.good("GET", "/job/1")
            assert (job["state"], job["why"]) == ("queued", "node-lost")

    async def test_a_report_brings_it_back(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await self.lose(w, clock)
            back = await w.good("POST", "/node/n1/report", report(gpus=[gpu(0)]))
            assert (back["lost"], back["jobs"][0]["attempt"]) == (False, 2)

    async def test_an_agent_that_is_heard_while_its_node_is_being_lost_is_not_told_to_go_on(self) -> None:
        clock, store = SteadyClock(), WatchedStore("node-lost")
        async with silent_world(clock, store=store) as w:
            await w.good("POST", "/node", node(replaced=True))
            await w.submit()
            clock.go_on(NODE_TIMEOUT_S + 1)
            assert await asyncio.to_thread(store.has_begun.wait, DEADLINE_S)
            w.service.driver._wake.clear()
            told = asyncio.create_task(w.good("POST", "/node/n1/report", report(gpus=[gpu(0)])))
            waits = asyncio.create_task(w.service.driver._wake.wait())
            await asyncio.wait({told, waits}, return_when=asyncio.FIRST_COMPLETED)
            was_told = told.done()
            store.goes_on.set()
            assert not was_told, "its jobs would run on under a new lease, and be started elsewhere"
            assert (await told)["jobs"][0]["attempt"] == 2

    async def test_many_nodes_are_lost_and_come_back_in_turns_that_leave_the_others_heard(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(driver, "NODES_LOST_PER_TURN_MAX", 2)
        monkeypatch.setattr(driver, "GPUS_PER_TURN_MAX", 4)
        clock, store = SteadyClock(), WatchedStore("node-lost")
        store.goes_on.set()
        async with silent_world(clock, store=store) as w:
            for name in "abcde":
                await w.good("POST", "/node", node(name, 2, replaced=True))
            clock.go_on(NODE_TIMEOUT_S + 1)
            await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "e")
            assert store.counts == [2, 2, 1]
            store.kind, store.counts = "node-returned", []
            gpus = [gpu(0), gpu(1)]
            bring = (w.good("POST", f"/node/{name}/report", report(gpus=gpus)) for name in "abcde")
            back = await asyncio.gather(*bring)
            assert not any(each["lost"] for each in back)
            assert sum(store.counts) == 5
            assert max(store.counts) == 2

    async def test_a_node_that_an_operator_knows_to_be_gone_loses_its_jobs_at_once(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(replaced=True))
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job)))
            assert (await w.refused("DELETE", "/node/n1"))[0] == 409
            assert await w.good("DELETE", "/node/n1?gone=true") == {"removed": ["n1"]}
            assert await w.state(job) == "queued"

    @staticmethod
    async def lose(w: Any, clock: SteadyClock) -> None:
        """A node with a job is not heard of for longer than it may be silent."""
        await w.good("POST", "/node", node(replaced=True))
        await w.submit()
        clock.go_on(NODE_TIMEOUT_S + 1)
        await w.line(lambda line: line.kind == "node-lost")


class TestHalted:
    """Agents that halt what they run: it goes on with their next report where nothing was started elsewhere."""

    async def test_it_goes_on_with_the_report_that_brings_its_node_back(self) -> None:
        clock, store = SteadyClock(), MemoryStore()
        async with silent_world(clock, store=store) as w:
            job = await self.lose(w, clock)
            assert (await w.good("GET", f"/job/{job}"))["state"] == "queued"
            assert await self.restarted(store) == "queued"
            back = await w.good("POST", "/node/n1/report", report(launched(job), gpus=[gpu(0)], halts=True))
            assert [(one["id"], one["attempt"], one["run"]) for one in back["jobs"]] == [(job, 1, True)]
            told = await w.good("GET", f"/job/{job}")
            assert (told["why"], told["attempt"]) == ("went-on", 1)
            assert [(one["number"], one["end_s"], one["why"]) for one in told["attempts"]] == [(1, None, "")]

    async def test_one_that_ended_before_its_node_was_missed_is_told_once_that_has_reported(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            job = await self.lose(w, clock)
            status, told = await w.refused("POST", "/finished_job", finished(job))
            assert (status, "has to report first" in str(told)) == (409, True)
            await w.good("POST", "/node/n1/report", report(gpus=[gpu(0)], halts=True))
            await w.good("POST", "/finished_job", finished(job))
            assert (await w.good("GET", f"/job/{job}"))["state"] == "succeeded"

    async def test_a_gang_stands_on_its_other_nodes_too_once_their_agents_say_so_and_goes_on_as_one(self) -> None:
        clock, store = SteadyClock(), MemoryStore()
        async with silent_world(clock, store=store) as w:
            job = await self.lose_part(w, clock)
            told = await self.of_first(w, {})
            assert [(one["run"], one["halt"]) for one in told["jobs"]] == [(True, True)]
            assert (await w.good("GET", f"/job/{job}"))["state"] == "stopping"
            told = await self.of_first(w, {"halted": True})
            assert [(one["run"], one["halt"]) for one in told["jobs"]] == [(True, True)]
            assert (await w.good("GET", f"/job/{job}"))["state"] == "queued"
            assert await self.restarted(store) == "queued"
            back = report(launched(job), agent_id="a2", gpus=[gpu(0)], halts=True, halts_told=True)
            told = await w.good("POST", "/node/n2/report", back)
            assert [(one["attempt"], one["run"], one["halt"]) for one in told["jobs"]] == [(1, True, False)]
            told = await self.of_first(w, {"halted": True})
            assert [(one["attempt"], one["run"], one["halt"]) for one in told["jobs"]] == [(1, True, False)]
            shown = await w.good("GET", f"/job/{job}")
            assert (shown["why"], shown["attempt"], shown["state"]) == ("went-on", 1, "launching")

    async def test_a_gang_of_an_agent_that_is_told_nothing_is_stopped_there(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await self.lose_part(w, clock, halts_told=False)
            told = await self.of_first(w, {}, halts_told=False)
            assert [(one["run"], one["halt"]) for one in told["jobs"]] == [(False, False)]

    async def test_a_gang_does_not_go_on_of_which_a_part_has_ended_while_it_stood(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            job = await self.lose_part(w, clock)
            await self.of_first(w, {"halted": True})
            end = finished(job, agent_id="a1", outcome="signalled", exit_code=None, signal=9)
            assert (await w.good("POST", "/finished_job", end))["believed"] is True
            assert (await self.of_first(w, {}, has_it=False))["jobs"] == []
            await w.good("POST", "/node/n2/report", report(launched(job), agent_id="a2", gpus=[gpu(0)], halts=True))
            assert (await w.good("GET", f"/job/{job}"))["attempt"] == 2

    @staticmethod
    async def of_first(w: Any, said: dict[str, Any], *, halts_told: bool = True, has_it: bool = True) -> Any:
        """The first node reports, which is heard."""
        jobs = [{**launched(1), **said}] if has_it else []
        return await w.good("POST", "/node/n1/report", report(*jobs, halts=True, halts_told=halts_told))

    @staticmethod
    async def lose_part(w: Any, clock: SteadyClock, *, halts_told: bool = True) -> int:
        """One of two nodes of a job is silent for too long."""
        await w.good("POST", "/node", node())
        await w.good("POST", "/node", node("n2", agent_id="a2", replaced=True))
        job = int(await w.submit(gpus=2, multi_node=True))
        for name, agent_id in (("n1", "a1"), ("n2", "a2")):
            said = report(launched(job), agent_id=agent_id, halts=True, halts_told=halts_told)
            await w.good("POST", f"/node/{name}/report", said)
        clock.go_on(2 * NODE_TIMEOUT_S)
        await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n2")
        return job

    @staticmethod
    async def restarted(store: MemoryStore) -> str:
        return str(read_board(store).jobs[JobId(1)].state)

    @staticmethod
    async def lose(w: Any, clock: SteadyClock) -> int:
        """A node whose agent halts jobs is silent for too long."""
        await w.good("POST", "/node", node(replaced=True))
        job = int(await w.submit())
        await w.good("POST", "/node/n1/report", report(launched(job), halts=True))
        clock.go_on(2 * NODE_TIMEOUT_S)
        await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n1")
        return job


class TestOverload:
    async def test_a_report_whose_agent_has_given_up_is_not_worked_at(self) -> None:
        """It is asked anew by then: a scheduler that goes through both never catches up."""
        store = WatchedStore("node-registered")
        store.goes_on.set()
        async with world(store=store) as w:
            await w.good("POST", "/node", node(replaced=True))
            store.has_begun.clear()
            store.goes_on.clear()
            joining = asyncio.create_task(w.good("POST", "/node", node("n2", agent_id="a2")))
            assert await asyncio.to_thread(store.has_begun.wait, DEADLINE_S)
            w.service.driver._wake.clear()
            standing, sent = Standing(), list[Any]()
            told = json.dumps(report(messages=["something new"])).encode()
            reporting = asyncio.create_task(ask(w.app, "/node/n1/report", told, standing, sent))
            async with asyncio.timeout(DEADLINE_S):
                await w.service.driver._wake.wait()
            standing.leave()
            await reporting
            store.goes_on.set()
            await joining
            await w.submit()  # by a later turn than that report's
            assert (await w.good("GET", "/node/n1"))["messages"] == sent == []


async def ask(app: Any, path: str, body: bytes, standing: Standing, sent: list[Any]) -> None:
    """Post as an operator on a connection that may close."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = {**OPERATOR, "host": "127.0.0.1", "content-type": "application/json"}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": raw}
    await app({**scope, "state": {STANDING: standing}}, receive, send)


class TestNudge:
    async def test_an_agent_is_told_when_its_jobs_change_and_only_then(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(replaced=True))
            await w.good("POST", "/node", node("n2", agent_id="a2", pool="other"))
            w.agents.nudged.clear()
            w.agents.changed.clear()
            await w.submit()
            async with asyncio.timeout(DEADLINE_S):
                await w.agents.changed.wait()
            assert w.agents.nudged == ["n1"]

    async def test_an_agent_that_is_down_costs_nothing(self) -> None:
        async with world() as w:
            w.agents.down = True
            await w.good("POST", "/node", node(replaced=True))
            assert await w.submit() == 1
            assert await w.state(1) == "assigned"


def test_an_unknown_node_has_no_job_on_the_board() -> None:
    assert ReadModel().assigned("nowhere") == []


class TestLease:
    async def told(self, w: Any, name: str, leased: bool) -> Any:
        return await w.good("POST", f"/node/{name}/report", report(agent_id=f"a-{name}", leased=leased))

    async def test_only_what_stands_alone_has_an_endless_one(self) -> None:
        async with world(node_timeout_s=60.0) as w:
            await w.good("POST", "/node", node("n1", agent_id="a-n1"))
            assert (await self.told(w, "n1", leased=True))["lease_s"] is None
            await w.good("POST", "/node", node("n2", agent_id="a-n2", pool="other"))
            assert (await self.told(w, "n1", leased=False))["lease_s"] is None
            await w.good("POST", "/node", node("n3", agent_id="a-n3"))
            bounded = await self.told(w, "n1", leased=False)
            assert 59.0 < bounded["lease_s"] < 60.0
            assert bounded["leased"] is False
            assert (await self.told(w, "n1", leased=True))["leased"] is True

    async def test_one_whose_place_another_takes_has_a_lease_though_it_is_alone(self) -> None:
        """A pilot, say: its jobs go on elsewhere as soon as there is another."""
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await w.good("POST", "/node", {**node("n1", agent_id="a-n1"), "replaced": True})
            assert 0 < (await self.told(w, "n1", leased=True))["lease_s"] < NODE_TIMEOUT_S
            job = await w.submit()
            clock.go_on(NODE_TIMEOUT_S + 1)
            await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n1")
            await w.good("POST", "/node", node("n2", agent_id="a-n2"))
            assert (await w.good("GET", f"/job/{job}"))["node"] == "n2"

    async def test_a_silent_node_is_not_lost_before_its_agent_knows(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock) as w:
            await w.good("POST", "/node", node("n1", agent_id="a-n1"))
            await self.told(w, "n1", leased=True)
            job = await w.submit()
            await w.good("POST", "/node", node("n2", agent_id="a-n2", replaced=True))
            await self.told(w, "n1", leased=False)
            clock.go_on(NODE_TIMEOUT_S + 1)
            await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n2")
            assert await w.state(job) == "assigned"
            await w.good("DELETE", "/node/n1")
            assert (await w.good("GET", f"/job/{job}"))["why"] == "node-lost"

    async def test_what_ended_for_want_of_word_is_queued_again_and_is_no_failure(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(replaced=True))
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job)))
            end = finished(job, outcome="lease-run-out", exit_code=None, signal=15)
            assert (await w.good("POST", "/finished_job", end))["believed"] is True
            shown = await w.good("GET", f"/job/{job}")
            assert (shown["attempt"], shown["failures"], shown["state"]) == (2, 0, "assigned")

    async def test_a_node_whose_agent_reports_is_not_forgotten_with_its_jobs(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(replaced=True))
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job)))
            status, said = await w.refused("DELETE", "/node/n1")
            assert status == 409
            assert f"has jobs {job}: drain the node" in said
            assert await w.state(job) == "launching"
            await w.good("POST", "/finished_job", finished(job))
            assert await w.good("DELETE", "/node/n1") == {"removed": ["n1"]}

    async def test_an_unknown_node_cannot_be_forgotten(self) -> None:
        async with world() as w:
            assert (await w.refused("DELETE", "/node/nobody"))[0] == 404


class TestNodeFault:
    async def test_a_job_that_could_not_be_started_waits_until_the_node_can_and_nothing_is_counted(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            first, second = await w.submit(), await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(first)))
            end = finished(second, outcome="node-fault", exit_code=None, detail="the disk is full")
            await w.good("POST", "/finished_job", end)
            shown = await w.good("GET", f"/job/{second}")
            assert (shown["state"], shown["failures"], shown["why"]) == ("queued", 0, "node-fault")
            assert shown["reason"] == "node n1 could not start it: the disk is full"
            assert [gpu["healthy"] for gpu in (await w.good("GET", "/node/n1"))["gpus"]] == [True, False]
            assert await w.state(first) == "launching"
            await w.good("POST", "/node/n1/report", report(launched(first), gpus=[gpu(0), gpu(1)]))
            shown = await w.good("GET", f"/job/{second}")
            assert (shown["state"], shown["attempt"], shown["failures"]) == ("assigned", 2, 0)


class GrantsSeen(MemoryStore):
    """Knows when what agents may hold is said to be less than before."""

    def __init__(self) -> None:
        super().__init__()
        self.has_lowered = threading.Event()

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        before = self.get(META, GRANTED_KEY)
        number = super().commit(transaction, writer)
        if before is not None and granted_s(self) < before["lease_s"]:
            self.has_lowered.set()
        return number


class TestGrants:
    """A scheduler that starts counts nobody as lost whose jobs may run on by the word of the one before."""

    async def test_one_that_ends_lets_jobs_run_on_and_the_next_one_waits_for_as_long(self) -> None:
        store, clock = MemoryStore(), SteadyClock()
        async with silent_world(SteadyClock(), store=store) as w:
            await w.good("POST", "/node", node(replaced=True))
            await w.good("POST", "/node", node("n2", agent_id="a2"))
            await w.submit()
            told = await w.good("POST", "/node/n1/report", report())
            assert told["lease_s"] < NODE_TIMEOUT_S
            nudges, w.agents.changed = len(w.agents.nudged), asyncio.Event()
            ending = asyncio.create_task(w.service.grants.farewell())
            await w.agents.changed.wait()
            assert granted_s(store) == leases.FAREWELL_S, "before any agent is told"
            assert w.agents.nudged[nudges:] == ["n1"], "the other one has no job"
            told = await w.good("POST", "/node/n1/report", report())
            assert NODE_TIMEOUT_S < told["lease_s"] < leases.FAREWELL_S
            await ending
        async with silent_world(clock, store=store) as w:
            clock.go_on(2 * leases.FAREWELL_S)
            await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n1")
            assert clock.now_s > leases.FAREWELL_S

    async def test_one_that_ends_with_no_job_on_a_leased_node_grants_nothing(self) -> None:
        store = MemoryStore()
        async with silent_world(SteadyClock(), store=store) as w:
            await w.good("POST", "/node", node(replaced=True))
            await w.service.grants.farewell()
            assert granted_s(store) == NODE_TIMEOUT_S

    async def test_one_with_a_shorter_lease_waits_for_the_longer_one_of_before(self) -> None:
        store, clock = MemoryStore(), SteadyClock()
        async with world(store=store, node_timeout_s=50.0) as w:
            await w.good("POST", "/node", node(replaced=True))
        async with silent_world(clock, store=store) as w:
            assert granted_s(store) == 50.0
            clock.go_on(100.0)
            await w.line(lambda line: line.kind == "node-lost")
            assert clock.now_s > 50.0

    async def test_an_agent_that_says_what_it_holds_of_this_scheduler_is_lost_as_soon_as_ever(self) -> None:
        store, clock = MemoryStore(), SteadyClock()
        async with world(store=store, node_timeout_s=50.0) as w:
            await w.good("POST", "/node", node(replaced=True))
        async with silent_world(clock, store=store) as w:
            told = await w.good("POST", "/node/n1/report", report(lease_left_s=49.0))
            held = {"epoch": told["epoch"], "events_seen": told["events"], "lease_left_s": told["lease_s"]}
            await w.good("POST", "/node/n1/report", report(cluster_id=told["cluster_id"], **held))
            clock.go_on(100.0)
            await w.line(lambda line: line.kind == "node-lost")
            assert clock.now_s < 50.0

    async def test_one_that_has_not_renewed_a_longer_lease_of_before_is_lost_when_that_is_over(self) -> None:
        """Its report has named this start, by what it was told of an end; the answers to its reports were lost."""
        store, clock = MemoryStore(), SteadyClock()
        async with world(store=store, node_timeout_s=50.0) as w:
            await w.good("POST", "/node", node(replaced=True))
        async with silent_world(clock, store=store) as w:
            told = await w.good("POST", "/node/n1/report", report(lease_left_s=49.0))
            held = {"epoch": told["epoch"], "events_seen": told["events"], "lease_left_s": 45.0}
            await w.good("POST", "/node/n1/report", report(cluster_id=told["cluster_id"], **held))
            clock.go_on(100.0)
            await w.line(lambda line: line.kind == "node-lost")
            assert clock.now_s > 45.0

    async def test_an_agent_that_ends_its_jobs_has_a_longer_one_than_one_that_halts_them(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock, unhalted_lease_s=50.0) as w:
            await w.good("POST", "/node", node("n1", agent_id="a1", replaced=True))
            await w.good("POST", "/node", node("n2", agent_id="a2", replaced=True))
            halting = await w.good("POST", "/node/n1/report", report(agent_id="a1", halts=True))
            ending = await w.good("POST", "/node/n2/report", report(agent_id="a2"))
            assert halting["lease_s"] < NODE_TIMEOUT_S < ending["lease_s"] < 50.0
            clock.go_on(100.0)
            await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n2")
            assert clock.now_s > 50.0

    async def test_a_node_with_a_server_has_a_longer_one_from_the_report_on_that_is_answered_with_it(self) -> None:
        clock = SteadyClock()
        async with silent_world(clock, unhalted_lease_s=50.0) as w:
            await w.good("POST", "/node", node(replaced=True))
            before = await w.good("POST", "/node/n1/report", report(halts=True))
            job = await w.submit(kind="inference")
            after = await w.good("POST", "/node/n1/report", report(halts=True))
            assert after["jobs"][0]["id"] == job
            assert before["lease_s"] < NODE_TIMEOUT_S < after["lease_s"] < 50.0
            clock.go_on(100.0)
            await w.line(lambda line: line.kind == "node-lost")
            assert clock.now_s > 50.0

    async def test_what_is_stored_is_its_own_lease_once_longer_ones_are_over(self) -> None:
        store = GrantsSeen()
        async with world(store=store, node_timeout_s=0.2):
            assert not store.has_lowered.is_set()
        async with world(store=store, node_timeout_s=0.1):
            assert granted_s(store) == 0.2
            assert await asyncio.to_thread(store.has_lowered.wait, DEADLINE_S)

    async def test_of_a_store_without_word_of_it_the_default_of_before_is_taken(self) -> None:
        store = MemoryStore()
        begin_epoch(store, 0.0)
        assert begin_epoch(store, 1.0, lease_s=15.0).granted_s == GRANTED_BEFORE_S == granted_s(store)


def granted_s(store: MemoryStore) -> float:
    body = store.get(META, GRANTED_KEY)
    assert body is not None
    return float(body["lease_s"])
