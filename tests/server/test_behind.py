"""A store over the network that lacks what agents have heard of is not acted upon until an operator adopts it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from colane.cli.app import run
from colane.server.nodes import behind
from colane.server.upkeep.moving import copy
from colane.server.writer.driver import LiveDriver
from tests.memory_store import MemoryStore
from tests.server.harness import SLEEP, SteadyClock, World, launched, node, report, world
from tests.server.test_epochs import AGENTS, copied, heard, two_nodes

LEASE_S = 600.0


async def reported(w: World, known: dict[str, Any], *jobs: dict[str, Any], name: str = "n1") -> tuple[int, Any, str]:
    answer = await w.post(f"/node/{name}/report", report(*jobs, agent_id=AGENTS[name], **known))
    return answer.status_code, answer.json(), answer.headers.get("colane-lease", "")


async def lost_by_a_replica() -> tuple[MemoryStore, dict[str, Any], dict[str, Any]]:
    """A replica that lacks the last three events of a cluster; what agents of the cluster have heard of it."""
    store = MemoryStore()
    async with world(store, leader_lease_s=LEASE_S) as w:
        await two_nodes(w)
        replica = copied(store)
        replica._version = store._version
        late = await heard(w, "n2")
        before = w.service.feed.last_number
        await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(1), **await heard(w)))
        known = await heard(w)
        assert known["events_seen"] > before
    return replica, known, late


async def test_nothing_is_changed_until_it_is_adopted() -> None:
    replica, known, late = await lost_by_a_replica()
    lacks = known["events_seen"] - late["events_seen"]
    async with world(replica, leader_lease_s=LEASE_S) as w:
        status, said, lease = await reported(w, known, launched(1))
        assert status == 503
        assert f"the store lacks {lacks} changes that node n1 has heard of" in said["detail"]
        assert f"colane store adopt --lost {lacks}" in said["detail"]
        assert float(lease) == pytest.approx(60 / 1.01), "jobs go on meanwhile"
        status, _, lease = await reported(w, late, name="n2")
        assert (status, lease != "") == (503, True), "none is told what to run"
        events = replica.last_audit_number()
        assert (await w.refused("POST", "/job", SLEEP))[0] == 503
        health = (await w.http.get("/health")).json()
        assert (health["status"], "the store lacks" in health["detail"]) == ("store-unavailable", True)
        assert replica.last_audit_number() == events
        assert await w.good("GET", "/store/behind") == {"lost": lacks, "nodes": ["n1"], "jobs": [1]}
        assert (await w.refused("POST", "/store/adopt", {"lost": lacks + 1}))[0] == 409
        adopted = await w.good("POST", "/store/adopt", {"lost": lacks})
        assert adopted == {"lost": lacks, "nodes": ["n1"], "jobs": [1]}
        assert await w.good("GET", "/store/behind") == {"lost": 0, "nodes": [], "jobs": []}
        status, told, _ = await reported(w, known, launched(1))
        assert (status, told["cluster_id"] != known["cluster_id"]) == (200, True), "it begins anew"
        status, told, _ = await reported(w, late, name="n2")
        assert (status, told["cluster_id"]) == (200, known["cluster_id"]), "and the others go on"
        assert await w.submit() == 1
        assert "store-adopted" in [line.kind for line in replica.audit(0, 100)]


async def test_what_is_lost_without_an_event_is_found_by_the_version() -> None:
    store = MemoryStore()
    async with world(store, leader_lease_s=LEASE_S) as w:
        await two_nodes(w)
        replica = copied(store)
        replica._version = store._version
        await w.good("POST", "/node/n1/report", report(leased=False, **await heard(w)))
        told = await w.good("GET", "/node/n1")
        known = {**await heard(w), "version_seen": told["store_version"]}
        assert (told["events"], told["store_version"]) == (replica.last_audit_number(), replica.version() + 1)
    async with world(replica, leader_lease_s=LEASE_S) as w:
        status, said, _ = await reported(w, known)
        assert (status, "lacks 1 changes that node n1 has heard of" in said["detail"]) == (503, True)
        assert await w.good("GET", "/store/behind") == {"lost": 1, "nodes": ["n1"], "jobs": []}
        await w.good("POST", "/store/adopt", {"lost": 1})
        status, told, _ = await reported(w, known)
        assert (status, told["cluster_id"]) == (200, known["cluster_id"]), "the store knows all that runs there"
    async with world(store, leader_lease_s=LEASE_S) as w:
        assert (await reported(w, known))[0] == 503, "the other node is not heard yet"
        assert await w.good("GET", "/store/behind") == {"lost": 0, "nodes": [], "jobs": []}


async def test_a_copy_whose_versions_are_counted_anew_lacks_nothing() -> None:
    store, moved = MemoryStore(), MemoryStore()
    async with world(store, leader_lease_s=LEASE_S) as w:
        await two_nodes(w)
        known = {**await heard(w), "version_seen": (await w.good("GET", "/node/n1"))["store_version"]}
    copy(store, moved)
    async with world(moved, leader_lease_s=LEASE_S) as w:
        assert w.service.driver.lead.version < known["version_seen"]
        await reported(w, known)
        status, told, _ = await reported(w, known, name="n2")
        assert (status, told["cluster_id"]) == (200, known["cluster_id"])


async def test_it_begins_by_hearing_those_it_knows() -> None:
    store, clock = MemoryStore(), SteadyClock()
    async with world(store, leader_lease_s=LEASE_S) as w:
        await two_nodes(w)
        known = await heard(w)
    async with world(store, leader_lease_s=LEASE_S) as w:
        w.service.leading.behind.clock = clock
        w.service.leading.hear_first()
        waiting = w.service.driver.change(lambda turn: turn.next_job_id)
        status, said, _ = await reported(w, known)
        assert (status, said["detail"]) == (503, behind.WAITS)
        status, told, _ = await reported(w, known, name="n2")
        assert (status, told["epoch"]["number"]) == (200, 2), "all are heard"
        assert await waiting == 1
        w.service.leading.hear_first()
        clock.go_on(behind.HEAR_MAX_S + 1)
        assert await w.submit() == 1, "it does not wait for ever for what may be gone"


async def test_one_in_a_file_sets_the_node_apart_as_ever() -> None:
    replica, known, _ = await lost_by_a_replica()
    async with world(replica) as w:
        status, told, _ = await reported(w, known, launched(1))
        assert (status, told["cluster_id"] != known["cluster_id"]) == (200, True)


async def test_nothing_is_adopted_where_nothing_is_lost() -> None:
    async with world(leader_lease_s=LEASE_S) as w:
        await w.good("POST", "/node", node())
        assert (await w.refused("POST", "/store/adopt", {"lost": 1}))[0] == 409


def test_the_command_needs_a_number_that_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "adopt", "--lost", "0"]) == 2
    assert "--lost" in capsys.readouterr().err


async def test_a_timer_that_is_over_lets_it_ask_no_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would take turns without end, on a whole core, for as long as nothing may be changed."""
    replica, known, _ = await lost_by_a_replica()
    async with world(replica, leader_lease_s=LEASE_S) as w:
        assert (await reported(w, known, launched(1)))[0] == 503
        driver, turns = w.service.driver, 0
        take = LiveDriver._fail_all

        def counted(self: LiveDriver, message: str) -> None:
            nonlocal turns
            turns += 1
            take(self, message)

        monkeypatch.setattr(LiveDriver, "_fail_all", counted)
        driver._timer_s = driver.now() - 1.0
        assert (await w.refused("POST", "/job", SLEEP))[0] == 503
        for _ in range(1000):
            await asyncio.sleep(0)
        assert turns <= 3
