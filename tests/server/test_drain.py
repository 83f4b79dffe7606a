"""Draining nodes by the API: asked, shown, kept over a restart, and told by agents of their own machines."""

from __future__ import annotations

from typing import Any

import pytest

from colane.api.wire_nodes import NodeBody, ReportBody
from colane.core.events import NodeLost
from colane.model.hardware import Drain
from colane.server.board.turn import Turn
from colane.server.nodes import draining
from colane.server.writer import changes
from tests.memory_store import MemoryStore
from tests.server.harness import launched, node, report, world


async def test_a_drained_node_is_shown_and_takes_no_job_until_it_is_undrained() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.good("POST", "/node/n1/drain", {"reason": "new fan", "deadline_s": "10m"})
        drained = await w.good("GET", "/node/n1")
        assert (drained["state"], drained["drain"]["reason"], drained["notice"]) == ("drained", "new fan", None)
        assert drained["drain"]["deadline_s"] - drained["drain"]["since_s"] == 600.0
        job = await w.submit()
        assert await w.state(job) == "queued"
        assert "n1" in (await w.good("GET", f"/job/{job}/why"))["sentence"]
        await w.good("DELETE", "/node/n1/drain")
        assert await w.state(job) == "assigned"
        assert (await w.good("GET", "/node/n1"))["state"] == "up"
        assert '"new fan"' in w.everything_stored()


async def test_it_is_kept_over_a_restart_and_over_a_new_registration() -> None:
    store = MemoryStore()
    async with world(store) as w:
        await w.good("POST", "/node", node())
        await w.good("POST", "/node/n1/drain", {})
    async with world(store) as w:
        await w.good("POST", "/node", node())
        assert (await w.good("GET", "/node/n1"))["state"] == "drained"
        assert await w.state(await w.submit()) == "queued"


async def test_jobs_leave_and_any_there_at_the_deadline_is_stopped() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        stays, goes = await w.submit(), await w.submit(preemptible=True)
        await w.good("POST", "/node/n1/report", report(launched(stays), launched(goes)))
        await w.good("POST", "/node/n1/drain", {"deadline_s": 3600})
        assert [await w.state(stays), await w.state(goes)] == ["launching", "stopping"]
        assert (await w.good("GET", "/node/n1"))["state"] == "draining"
        await w.good("POST", "/node/n1/drain", {"deadline_s": 0})
        assert await w.state(stays) == "stopping"
        assert "the time for that is over" in (await w.good("GET", f"/job/{stays}"))["reason"]


@pytest.mark.parametrize("kind", ["training", "inference"])
@pytest.mark.parametrize(
    ("fields", "deadline", "said"),
    [
        ({}, {}, "it is left to finish there"),
        ({}, {"deadline_s": 3600}, "it is left to finish there, and is stopped at "),
        ({"preemptible": True}, {}, "it saves its state and goes on elsewhere"),
    ],
)
async def test_a_job_on_a_drained_node_says_what_that_means_for_it(
    kind: str, fields: dict[str, Any], deadline: dict[str, Any], said: str
) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit(kind=kind, **fields)
        progress = {"at_s": 2.0, "first_step_s": 1.0, "steps": 5}
        await w.good("POST", "/node/n1/report", report(launched(job, progress=progress)))
        assert not any("drained" in one for one in (await w.good("GET", f"/job/{job}/why"))["now"])
        await w.good("POST", "/node/n1/drain", {"reason": "new fan", **deadline})
        if await w.state(job) in {"running", "running-protected"}:
            found = (await w.good("GET", f"/job/{job}/why"))["now"]
            assert any("n1 is drained by " in one and f"(new fan): {said}" in one for one in found), found
        else:
            assert fields, "only one that may be stopped leaves at once"


async def test_a_lost_node_is_drained_once_it_is_back() -> None:
    store = MemoryStore()
    async with world(store, node_timeout_s=0.05, tick_s=0.01) as w:
        await w.good("POST", "/node", node(replaced=True))
        await w.good("POST", "/node", node("n2", agent_id="a2", replaced=True))
        await w.line(lambda line: line.kind == "node-lost" and line.body["node"] == "n1")
        await w.good("POST", "/node/n1/drain", {"reason": "smoke"})
        assert (await w.good("GET", "/node/n1"))["state"] == "lost"
        await w.good("POST", "/node/n1/report", report())
        assert (await w.good("GET", "/node/n1"))["drain"]["reason"] == "smoke"


async def test_a_drain_in_the_turn_in_which_its_node_is_lost_is_kept() -> None:
    """Found by `scripts/faults`, colocate seed 1023."""
    async with world() as w:
        await w.good("POST", "/node", node())

        def prepare(turn: Turn) -> None:
            draining.drain(turn, "n1", Drain("operator", "smoke", turn.now_s, None))
            turn.events.append(NodeLost("n1"))

        await w.service.driver.change(prepare)
        lost = await w.good("GET", "/node/n1")
        assert (lost["state"], lost["drain"]["reason"]) == ("lost", "smoke")
        await w.good("POST", "/node", node())
        assert (await w.good("GET", "/node/n1"))["drain"]["reason"] == "smoke"


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("by_report", [True, False], ids=["report", "registration"])
async def test_a_drain_in_the_turn_in_which_its_node_returns_is_kept(*, is_first: bool, by_report: bool) -> None:
    """Found by `scripts/faults`, colocate seed 1155."""
    async with world() as w:
        await w.good("POST", "/node", node())

        def lose(turn: Turn) -> None:
            turn.events.append(NodeLost("n1"))

        def drain(turn: Turn) -> None:
            draining.drain(turn, "n1", Drain("operator", "smoke", turn.now_s, None))

        def back(turn: Turn) -> None:
            if by_report:
                changes.report(turn, "n1", ReportBody.model_validate(report()))
            else:
                changes.register(turn, NodeBody.model_validate(node()), is_heard=True)

        def prepare(turn: Turn) -> None:
            for change in (drain, back) if is_first else (back, drain):
                change(turn)

        await w.service.driver.change(lose)
        await w.service.driver.change(prepare)
        assert await w.state(await w.submit()) == "queued"
        assert (await w.good("POST", "/node/n1/report", report()))["drain"]["reason"] == "smoke"


async def test_an_agents_notice_drains_its_node_while_it_says_so() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        told = await w.good("POST", "/node/n1/report", report(notice={"reason": "spot", "left_s": 110.0}))
        assert (told["state"], told["drain"], told["notice"]["by"]) == ("drained", None, "node n1")
        before = w.service.store.last_audit_number()
        again = await w.good("POST", "/node/n1/report", report(notice={"reason": "spot", "left_s": 109.5}))
        assert again["notice"] == told["notice"]
        assert w.service.store.last_audit_number() == before, "it is no news"
        sooner = await w.good("POST", "/node/n1/report", report(notice={"reason": "spot", "left_s": 30.0}))
        assert sooner["notice"]["deadline_s"] < told["notice"]["deadline_s"] - 60
        assert (await w.good("POST", "/node/n1/report", report()))["state"] == "up"


async def test_an_operators_drain_stays_when_the_notice_is_taken_back() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.good("POST", "/node/n1/drain", {})
        await w.good("POST", "/node/n1/report", report(notice={}))
        assert (await w.good("POST", "/node/n1/report", report()))["state"] == "drained"
        await w.good("POST", "/node/n1/report", report(notice={}))
        await w.good("DELETE", "/node/n1/drain")
        assert (await w.good("GET", "/node/n1"))["state"] == "drained", "its agent has notice of its own"


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("/node/n9/drain", {}, 404, "there is no node 'n9'"),
        ("/node/n1/drain", {"deadline_s": "soon"}, 422, "deadline_s"),
        ("/node/n1/drain", {"deadline_s": -1}, 422, "deadline_s"),
        ("/node/n1/drain", {"reason": "a\nb"}, 422, "reason"),
        ("/node/n1/drain", {"by": "eve"}, 422, "by"),
    ],
)
async def test_what_is_asked_wrongly_drains_nothing(path: str, body: dict[str, Any], status: int, word: str) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        assert (await w.refused("POST", path, body))[0] == status
        assert word in str(await w.refused("POST", path, body))
        assert (await w.good("GET", "/node/n1"))["state"] == "up"
