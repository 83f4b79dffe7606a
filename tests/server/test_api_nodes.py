"""Nodes, their agents' reports, and how jobs end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from colane.api.reports import ENDS_MAX
from tests.server.harness import (
    GB,
    SLEEP,
    CountingStore,
    finished,
    gpu,
    launched,
    node,
    report,
    without_own,
    world,
)


async def test_a_node_is_registered_and_shown() -> None:
    async with world() as w:
        answer = await w.good("POST", "/node", node(gpus=2))
        assert answer == await w.good("GET", "/node/n1")
        assert [each["name"] for each in await w.good("GET", "/nodes")] == ["n1"]
        assert (answer["lost"], answer["jobs"], len(answer["gpus"])) == (False, [], 2)
        assert answer["generation"] > 0
        assert answer["last_seen_s"] > 0


async def test_paper_a_form_of_a_node_is_completed_and_waits_for_its_agent() -> None:
    printed = {"name": "node-1", "gpus": ["0", "1"]}
    async with world() as w:
        for _ in range(2):  # also said again
            answer = await w.good("POST", "/node", printed)
            assert [(each["index"], each["type"]) for each in answer["gpus"]] == [(0, "unknown"), (1, "unknown")]
            assert (answer["state"], answer["lost"], answer["last_seen_s"]) == ("no-agent", True, None)
            assert "colane agent --name node-1" in answer["messages"][0]
        (job,) = (await w.good("POST", "/jobs", [{"command": ["true"], "gpus": 0}]))["ids"]
        assert (await w.good("GET", f"/job/{job}"))["state"] == "queued"
        assert "waits for its agent" in str((await w.good("GET", "/overview"))["look"])
        taken = await w.good("POST", "/node", node("node-1"))
        assert (taken["state"], [each["type"] for each in taken["gpus"]]) == ("up", ["cpu"])
        assert (await w.good("GET", f"/job/{job}"))["gpus"] == []
        assert (await w.good("GET", "/node/node-1"))["jobs"]
        await w.refused("POST", "/node", printed)  # its agent has it now
        await w.good("DELETE", f"/job/{job}")


async def test_what_is_forgotten_says_that_it_had_no_agent() -> None:
    async with world() as w:
        await w.good("POST", "/node", {"name": "node-1", "gpus": ["0"]})
        assert await w.good("DELETE", "/node/node-1") == {"removed": ["node-1"], "without_agent": ["node-1"]}
        await w.good("POST", "/node", {"name": "node-1", "gpus": ["0"]})
        await w.good("POST", "/node", node("n1"))
        found = await w.good("DELETE", "/nodes")
        assert (sorted(found["removed"]), found["without_agent"]) == (["n1", "node-1"], ["node-1"])
        assert await w.good("GET", "/nodes") == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "../x"}, "name"),
        ({"name": ""}, "name"),
        ({"address": "etc/passwd"}, "address"),
        ({"gpus": [gpu(0), gpu(0)]}, "gpus"),
        ({"gpus": [gpu(-1)]}, "gpus[0].Gpu.index"),
        ({"topology": {"links": [], "sockets": []}}, "topology"),
        ({"topology": {"links": [[["NV", 1, 0]]], "sockets": [0]}}, "topology"),
        ({"topology": {"links": [[["FOO", 1, 0]]], "sockets": [0]}}, "topology"),
        ({"topology": {"links": [[["X", 0, 0]]], "sockets": [0], "switches": [0, 0]}}, "topology"),
        ({"topology": {"links": [[["X", 0, 0]]], "sockets": [-1]}}, "topology.sockets[0]"),
    ],
)
async def test_bad_nodes_are_refused(change: dict[str, Any], field: str) -> None:
    async with world() as w:
        status, detail = await w.refused("POST", "/node", {**node(), **change})
        assert status == 422
        assert field in [each["field"] for each in detail]
        assert await w.good("GET", "/nodes") == []


class TestTwoAgents:
    async def test_the_second_of_a_name_is_refused(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            status, detail = await w.refused("POST", "/node", node(agent_id="a2"))
            assert status == 409
            assert detail[0]["field"] == "name"
            assert "another live agent (id a1) has the name 'n1'" in detail[0]["message"]
            assert (await w.good("GET", "/node/n1"))["agent_id"] == "a1"
            assert (await w.refused("POST", "/node/n1/report", report(agent_id="a2")))[0] == 409

    async def test_at_once_one_wins(self) -> None:
        async with world() as w:
            both = await asyncio.gather(*(w.post("/node", node(agent_id=f"a{n}")) for n in range(5)))
            assert sorted(answer.status_code for answer in both) == [200, 409, 409, 409, 409]

    async def test_the_same_agent_may_come_again(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            assert len((await w.good("POST", "/node", node(gpus=3)))["gpus"]) == 3


class TestUpdate:
    async def test_put_replaces(self) -> None:
        async with world() as w:
            shown = await w.good("POST", "/node", node())
            changed = await w.good("PUT", "/node/n1", {**shown, "pool": "other", "park_s": 2.0})
            assert changed["pool"] == (await w.good("GET", "/node/n1"))["pool"] == "other"
            assert (changed["park_s"], changed["to_host_bytes_per_s"]) == (2.0, shown["to_host_bytes_per_s"])

    async def test_put_of_the_unknown_and_of_another_name(self) -> None:
        async with world() as w:
            assert (await w.refused("PUT", "/node/n1", node()))[0] == 404
            assert (await w.refused("PUT", "/node/n2", node()))[0] == 422

    async def test_all_are_forgotten_only_when_idle(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            assert await w.refused("DELETE", "/nodes") == (409, "jobs are assigned to n1; cancel them first")
            await w.good("POST", "/finished_job", finished(1))
            assert await w.good("DELETE", "/nodes") == {"removed": ["n1"]}
            assert await w.good("GET", "/nodes") == []
            assert (await w.refused("POST", "/node/n1/report", report()))[0] == 404
            await w.good("POST", "/node", node())
            await w.submit()
            assert await w.state(2) == "assigned"


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"", 422, "is required"),
        (b"[1", 400, [{"field": "jobs[2]", "message": "the body is not valid JSON: Expecting ',' delimiter"}]),
        (b"[]", 422, "must be a valid dictionary or object to extract fields from"),
        (b"{}", 422, [{"field": "at_s", "message": "is required"}]),
        (b'{"at_s": "1"}', 422, [{"field": "at_s", "message": "must be a valid number, got '1'"}]),
        (b'{"at_s": 1, "jobs": [{"id": 1, "attempt": -1, "phase": "launched"}]}', 422,
         [{"field": "jobs[0].attempt", "message": "must be at least 0, got -1"}]),
        (b'{"at_s": NaN}', 422,
         [{"field": "at_s", "message": "must be a finite number, got a number that is not finite"}]),
    ],
)  # fmt: skip
async def test_bad_reports_are_refused_as_all_else_is(body: bytes, status: int, detail: Any) -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        answer = await w.http.post("/node/n1/report", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["detail"]) == (status, detail)


async def test_a_name_that_is_too_long_and_another_method() -> None:
    async with world() as w:
        assert (await w.refused("POST", f"/node/{'n' * 101}/report", report()))[0] == 422
        assert (await w.refused("GET", "/node/n1/report"))[0] == 405


class TestReport:
    async def test_devices_that_it_leaves_out_are_as_they_were(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node(gpus=2))
            await w.good("POST", "/node/n1/report", report(gpus=[gpu(0, healthy=False), gpu(1)]))
            shown = await w.good("POST", "/node/n1/report", report())
            assert [each["healthy"] for each in shown["gpus"]] == [False, True]

    async def test_a_job_goes_through_its_life(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit(name="mine", user="me", labels={"run": "a"})
            desired = (await w.good("GET", "/node/n1"))["jobs"]
            assert desired == [
                {"id": 1, "attempt": 1, "run": True, "halt": False, "because": "",
                 "slots": [{"gpu": 0, "lane": 0}], "cores": [],
                 "bandwidth_ratio": 1.0,
                 "gang": None, "time_limit_s": None, "memory_limit_bytes": 0, "weight": 1.0, "priority": 0,
                 "kind": "training", "steps_total": None, "paused": False, "to_host": False, "at_rest": False,
                 "on_host": False, "save": None, "flush": False, "memory": None}
            ]  # fmt: skip
            await w.good("POST", "/node/n1/report", report({"id": 1, "attempt": 1, "phase": "launching"}))
            assert await w.state(1) == "assigned"
            await w.good("POST", "/node/n1/report", report(launched(1)))
            assert await w.state(1) == "launching"
            # A first step far ahead keeps the job protected as long as the test takes.
            progress = {"at_s": 2.0, "steps": 5, "steps_total": 9, "loss": 0.5, "first_step_s": 4e9}
            await w.good("POST", "/node/n1/report", report(launched(1, progress=progress)))
            job = await w.good("GET", "/job/1")
            assert job["state"] == "running-protected"
            assert (job["steps"], job["steps_total"], job["progress"]["loss"]) == (5, 9, 0.5)
            ended = finished(1, step_durations_s=[0.1, 0.2], log_bytes=7, progress={**progress, "steps": 9})
            assert (await w.good("POST", "/finished_job", ended))["believed"] is True
            (record,) = await w.good("GET", "/finished_jobs")
            assert without_own(record) == without_own(await w.good("GET", "/job/1"))
            assert (record["state"], record["exit_code"], record["signal"]) == ("succeeded", 0, None)
            assert (record["gpus"], record["node"], record["policy"]) == (["n1/0"], "n1", "fifo")
            assert (record["steps"], record["steps_total"], record["log_bytes"]) == (9, 9, 7)
            assert (record["step_durations_s"], record["outcome"]) == ([0.1, 0.2], "exited")
            assert (record["name"], record["user"], record["labels"]) == ("mine", "me", {"run": "a"})
            states = [line["state"] for line in record["story"]]
            assert states == ["queued", "assigned", "launching", "running-protected", "succeeded"]
            assert all(line["sentence"] for line in record["story"])

    async def test_one_without_news_costs_no_turn(self) -> None:
        store = CountingStore()
        async with world(store) as w:
            await w.good("POST", "/node", node())
            await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(1)))
            commits, seen = store.commits, (await w.good("GET", "/node/n1"))["last_seen_s"]
            answer = await w.good("POST", "/node/n1/report", report(launched(1), gpus=[gpu(0)]))
            assert store.commits == commits
            assert answer["last_seen_s"] > seen

    async def test_progress_alone_is_shown_and_not_stored(self) -> None:
        store = CountingStore()
        async with world(store) as w:
            await w.good("POST", "/node", node())
            await w.submit()
            first = {"at_s": 2.0, "steps": 5, "first_step_s": 4e9}
            await w.good("POST", "/node/n1/report", report(launched(1)))
            await w.good("POST", "/node/n1/report", report(launched(1, progress=first)))
            commits = store.commits
            await w.good("POST", "/node/n1/report", report(launched(1, progress={**first, "steps": 6})))
            assert (await w.good("GET", "/live_jobs"))[0]["steps"] == 6
            assert store.commits == commits

    async def test_health_and_foreign_memory_of_gpus(self) -> None:
        async with world() as w:
            before = await w.good("POST", "/node", node())
            after = await w.good("POST", "/node/n1/report", report(gpus=[gpu(0, healthy=False, foreign_bytes=GB)]))
            assert (after["gpus"][0]["healthy"], after["gpus"][0]["foreign_bytes"]) == (False, GB)
            assert after["generation"] > before["generation"]
            await w.submit()
            assert await w.state(1) == "queued"

    async def test_messages_are_shown_and_told_once(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            text = "MPS on GPU 0 could not be started; time slicing is used"
            for _ in range(2):
                answer = await w.good("POST", "/node/n1/report", report(messages=[text]))
                assert answer["messages"] == [text]
            assert w.everything_stored().count(text) == 1

    @pytest.mark.parametrize("stranger", [launched(1, attempt=2), launched(77)])
    async def test_what_is_not_believed_changes_nothing(self, stranger: dict[str, Any]) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            before = await w.good("GET", "/node/n1")
            after = await w.good("POST", "/node/n1/report", report(stranger))
            assert after["jobs"] == before["jobs"]
            assert await w.state(1) == "assigned"

    async def test_from_an_unknown_node(self) -> None:
        async with world() as w:
            assert await w.refused("POST", "/node/n1/report", report()) == (
                404,
                "there is no node 'n1'; register it first",
            )


class TestFinished:
    @pytest.mark.parametrize(
        ("how", "state"),
        [
            ({"exit_code": 1}, "failed"),
            ({"outcome": "signalled", "exit_code": None, "signal": 9}, "failed"),
            ({"outcome": "out-of-memory", "exit_code": 1, "detail": "CUDA"}, "out-of-memory"),
            ({"outcome": "not-started", "exit_code": None, "detail": "no such file"}, "failed"),
            ({"outcome": "supervisor-died", "exit_code": None}, "assigned"),
        ],
    )
    async def test_each_end_has_its_state(self, how: dict[str, Any], state: str) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            await w.good("POST", "/finished_job", finished(1, **how))
            record = await w.good("GET", "/job/1")
            assert record["state"] == state
            assert record["reason"]

    async def test_told_twice_it_ends_once(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            both = await asyncio.gather(*(w.post("/finished_job", finished(1)) for _ in range(4)))
            assert sorted(answer.json()["believed"] for answer in both) == [False, False, False, True]
            again = await w.good("POST", "/finished_job", finished(1, exit_code=1))
            assert again["believed"] is False
            assert await w.state(1) == "succeeded"
            assert len(await w.good("GET", "/finished_jobs")) == 1

    async def test_ends_told_together_are_one_commit(self) -> None:
        store = CountingStore()
        async with world(store) as w:
            await w.good("POST", "/node", node(gpus=3))
            for _ in range(3):
                await w.submit()
            before = store.commits
            answer = await w.good("POST", "/finished_jobs", [finished(1), finished(3), finished(9), finished(1)])
            assert answer["believed"] == [True, True, False, False]
            assert store.commits == before + 1
            again = await w.good("POST", "/finished_jobs", [finished(3), finished(2, exit_code=3)])
            assert again["believed"] == [False, True]
            assert [await w.state(job) for job in (1, 2, 3)] == ["succeeded", "failed", "succeeded"]

    async def test_ends_told_together_are_of_one_node_and_all_valid(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            refusal = await w.refused("POST", "/finished_jobs", [finished(1), {**finished(2), "node": "n2"}])
            assert (refusal[0], refusal[1][0]["field"]) == (422, "1.node")
            for wrong in ([], [finished(1)] * (ENDS_MAX + 1), [finished(1), finished(1, exit_code=None)], finished(1)):
                assert (await w.refused("POST", "/finished_jobs", wrong))[0] == 422
            assert await w.state(1) == "assigned"

    @pytest.mark.parametrize("wrong", [{"attempt": 2}, {"agent_id": "a2"}, {"node": "n2"}, {"id": 99}])
    async def test_a_stranger_is_answered_and_not_believed(self, wrong: dict[str, Any]) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit()
            assert (await w.good("POST", "/finished_job", {**finished(1), **wrong}))["believed"] is False
            assert await w.state(1) == "assigned"

    async def test_how_it_ended_must_be_said(self) -> None:
        async with world() as w:
            assert (await w.refused("POST", "/finished_job", finished(1, exit_code=None)))[0] == 422
            assert (await w.refused("POST", "/finished_job", finished(1, outcome="signalled")))[0] == 422

    async def test_a_retry_runs_as_the_next_attempt(self) -> None:
        async with world() as w:
            await w.good("POST", "/node", node())
            await w.submit(retries=1)
            await w.good("POST", "/finished_job", finished(1, exit_code=1))
            job = await w.good("GET", "/job/1")
            assert (job["state"], job["attempt"], job["failures"]) == ("assigned", 2, 1)
            assert (await w.good("POST", "/finished_job", finished(1)))["believed"] is False
            await w.good("POST", "/finished_job", finished(1, attempt=2, exit_code=1))
            assert await w.state(1) == "failed"

    async def test_records_are_paged_and_filtered(self) -> None:
        async with world() as w:
            await w.good("POST", "/jobs", [{**SLEEP, "labels": {"parity": str(n % 2)}} for n in range(1, 8)])
            await w.good("DELETE", "/jobs")
            assert ids(await w.good("GET", "/finished_jobs")) == list(range(1, 8))
            assert ids(await w.good("GET", "/finished_jobs?after=2&limit=2")) == [3, 4]
            assert ids(await w.good("GET", "/finished_jobs?label=parity=0&limit=2")) == [2, 4]
            assert await w.good("GET", "/finished_jobs?label=parity=0&label=x=y") == []
            assert (await w.refused("GET", "/finished_jobs?label=parity"))[1][0]["field"] == "label"
            await w.good("DELETE", "/finished_jobs")
            assert await w.good("GET", "/finished_jobs") == []
            assert (await w.refused("GET", "/job/1"))[0] == 404


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [record["id"] for record in records]


async def test_a_ratio_rounded_below_zero_costs_no_report() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        sample = {"at_s": 1.0, "occupancy_ratio": -1e-9, "bandwidth_ratio": 0.5}
        await w.good("POST", "/node/n1/report", report(launched(job, progress=sample)))
        assert (await w.good("GET", f"/job/{job}"))["progress"]["occupancy_ratio"] == 0.0
        sample["occupancy_ratio"] = -0.5
        assert (await w.refused("POST", "/node/n1/report", report(launched(job, progress=sample))))[0] == 422


@pytest.mark.parametrize("step_s", [0, -1, {"value": 0}, {"value": -0.5}, "NaN"], ids=str)
async def test_a_declared_step_takes_time(step_s: Any) -> None:
    async with world() as w:
        profile = {"key": {"family": "f", "gpus": 2, "gpu_type": "cpu"}, "step_s": step_s}
        status, detail = await w.refused("PUT", "/profiles", profile)
        assert status == 422
        assert detail[0]["field"].startswith("step_s")
        assert await w.good("GET", "/profiles") == []
