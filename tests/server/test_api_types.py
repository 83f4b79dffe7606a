"""The law of the room `api`: whatever is answered is of the type that its route declares, no key more and none less.

Every answer to a client of `tests.server.harness.world` is judged, in whichever test; here it is seen to that all
endpoints declare a type, that all are judged, and that the judge can tell.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import ValidationError

from colane.api.events import EVENTS
from colane.api.forms import field_names
from colane.api.jobs import ConstraintsObject, JobObject, WhyAnswer
from colane.api.nodes import GpuObject, HardwareObject, TopologyObject
from colane.model.hardware import Gpu, Node, Topology
from colane.model.job_spec import Constraints
from colane.server.store.store import UNREADABLE_LINE, AuditLine
from tests.server.answers import OTHER_THAN_JSON, declared, judge, judge_events
from tests.server.harness import Agents, finished, launched, node, report, world
from tests.server.test_samples import SEEN, USE

PROFILE = {"key": {"family": "anns", "gpu_type": "cpu"}, "step_s": 0.5}
STEPS = {"at_s": 1.0, "steps": 1, "first_step_s": 0.5, "last_step_s": 0.5}
STACKS = {"rank": 0, "pid": 42, "text": "", "problem": ""}
INTERFACES = Path(__file__).parents[2] / "docs" / "reference" / "interfaces.md"
DIGEST = "0" * 64


async def test_every_endpoint_declares_its_answer() -> None:
    async with world() as w:
        routes = [route for route in w.app.routes if isinstance(route, APIRoute) and route.include_in_schema]
        every = {(method, route.path) for route in routes for method in route.methods or ()}
        assert set(declared(w.app)) == every - OTHER_THAN_JSON
        operations = (await w.good("GET", "/openapi.json"))["paths"]
        for method, path in declared(w.app):
            said = operations[path][method.lower()]["responses"]["200"]["content"]["application/json"]["schema"]
            assert said, (method, path)


async def test_no_schema_of_an_answer_is_made_before_the_openapi_is_asked_for() -> None:
    async with world() as w:
        await w.good("GET", "/openapi.json")
        assert [route.path for route in w.app.routes if isinstance(route, APIRoute) and route.response_fields] == []


def one_that_tells_stacks() -> Agents:
    return Agents(stacks={"n1/stacks/1/1": httpx.Response(200, json={"processes": [STACKS]})})


KEPT = {"nodes": "n1", "to": "now+1h", "users": ["ann"], "name": "course", "ignore_jobs": True}


async def test_every_endpoint_answers_what_it_declares() -> None:
    async with world(leader_lease_s=3600.0, agents=one_that_tells_stacks()) as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.good("PUT", "/node/n1", node(gpus=2))
        first = await w.submit(gpus=2, labels={"a": "b"}, env={"A": "b"}, checkpoint="plain", time_limit="1h")
        more = (await w.good("POST", "/jobs", [{"command": ["true"], "after": f"ok:{first}"}] * 3))["ids"]
        await w.good("GET", f"/job/{first}/launch")
        await w.good(
            "POST",
            "/node/n1/report",
            report(launched(first, progress=STEPS, use=USE), messages=["well"], devices=[SEEN]),
        )
        of_job = [f"/job/{first}/{what}" for what in ("efficiency", "cost", "co_runners", "stacks")]
        seeing = ("/overview", "/timeline", "/usage/days", "/usage/budgets", "/reservations", "/qos", *of_job)
        drawn = ("/samples/cluster", "/timeline/moves", "/page_rows", "/page_rows?overview=true")
        await w.good("GET", "/agent_settings")
        await w.good("GET", "/pools")
        for path in ("/samples/nodes/n1", f"/samples/jobs/{first}", *seeing, *drawn):
            await w.good("GET", path)
        await w.good("POST", "/page_link", {})
        await w.good("POST", f"/job/{first}/suspend", {})
        await w.good("POST", f"/job/{first}/resume", {})
        for path in (
            "/jobs",
            "/live_jobs",
            "/listing?ended=true",
            "/last_job",
            "/nodes",
            "/node/n1",
            "/usage",
            "/health",
        ):
            await w.good("GET", path)
        for path in (f"/job/{first}", f"/job/{first}/why", f"/job/{first}/request", f"/job/{more[0]}"):
            await w.good("GET", path)
        await w.good("GET", f"/job/{more[0]}/start")
        await w.good("POST", f"/job/{first}/change", {"time_limit": "2h"})
        await w.good("POST", f"/job/{first}/requeue", {})
        await w.good("POST", "/plan", [{"command": ["true"]}, {"command": ["true"], "array": "0-3"}])
        await w.good("GET", "/nodes")
        await w.good("POST", "/finished_job", finished(first, exit_code=75))
        await w.good("DELETE", f"/job/{more[0]}")
        await w.good("DELETE", "/jobs")
        await w.good("PUT", "/profiles", PROFILE)
        for path in (
            "/profiles",
            "/measurements",
            "/usage/used",
            "/usage/waiting",
            "/usage/ended",
            "/usage/shared",
            "/finished_jobs",
            "/listing?ended=true",
            f"/job/{more[0]}",
            f"/job/{more[0]}/why",
        ):
            await w.good("GET", path)
        await w.good("POST", "/node/n1/drain", {"deadline_s": 600, "reason": "new fan"})
        await w.good("POST", "/reservations", KEPT)
        for path in ("/reservations", "/node/n1"):
            await w.good("GET", path)
        for path in ("/reservation/course", "/node/n1/drain", "/profiles?family=anns"):
            await w.good("DELETE", path)
        token = (await w.good("POST", "/tokens", {"digest": DIGEST, "user": "ann"}))["id"]
        await w.good("GET", "/tokens")
        await w.good("DELETE", f"/token/{token}")
        assert all([await w.good("POST", path, {}) for path in ("/config/reload", "/hand_over")])
        await w.good("GET", "/store/behind")
        known = await w.good("GET", "/node/n1")
        ahead = {"cluster_id": known["cluster_id"], "epoch": known["epoch"], "events_seen": known["events"] + 5}
        assert (await w.post("/node/n1/report", report(**ahead))).status_code == 503
        await w.good("POST", "/store/adopt", {"lost": 5})
        await w.good("POST", "/node", node("n2", agent_id="a2"))
        await w.good("DELETE", "/node/n2")
        await w.good("DELETE", f"/job/{first}")
        attempt = (await w.good("GET", f"/job/{first}"))["attempt"]
        await w.good("POST", "/finished_job", finished(first, attempt))
        await w.good("POST", "/finished_jobs", [finished(first, attempt)])
        await w.good("DELETE", "/finished_jobs")
        await w.good("DELETE", "/nodes")
        assert w.judge.judged == set(declared(w.app))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (JobObject, {"sate": "queued"}),
        (JobObject, {"state": None}),
        (JobObject, {"steps": "3"}),
        (JobObject, {"holds": [{"kind": "user"}]}),
        (list[JobObject], {"id": 1.5}),
        (WhyAnswer, {"sentense": ""}),
    ],
)
async def test_what_is_not_declared_is_noticed(kind: Any, change: dict[str, Any]) -> None:
    async with world() as w:
        job = await w.submit()
        answer = await w.good("GET", f"/job/{job}/why" if kind is WhyAnswer else f"/job/{job}")
        several = kind is not WhyAnswer and kind is not JobObject
        judge(kind, json.dumps([answer] if several else answer).encode())
        changed = answer | change
        with pytest.raises(ValidationError):
            judge(kind, json.dumps([changed] if several else changed).encode())
        for name in answer.keys() - {"may", "attempts", "command", "workdir", "output"}:
            lacking = {key: value for key, value in answer.items() if key != name}
            with pytest.raises(ValidationError):
                judge(kind, json.dumps([lacking] if several else lacking).encode())


async def test_what_only_an_ended_job_has_is_all_there_or_not_at_all() -> None:
    async with world() as w:
        job = await w.submit()
        live = await w.good("GET", f"/job/{job}")
        with pytest.raises(AssertionError):
            judge(JobObject, json.dumps(live | {"exit_code": 0}).encode())
        await w.good("DELETE", f"/job/{job}")
        ended = await w.good("GET", f"/job/{job}")
        del ended["log_bytes"]
        with pytest.raises(AssertionError):
            judge(JobObject, json.dumps(ended).encode())


def test_what_is_sent_and_kept_of_hardware_and_progress_is_what_the_model_has() -> None:
    assert tuple(GpuObject.__annotations__) == field_names(Gpu)
    assert tuple(TopologyObject.__annotations__) == field_names(Topology)
    assert tuple(HardwareObject.__annotations__) == field_names(Node)
    held_to = set(field_names(Constraints)) - {"time_limit"} | {"time_limit_s"}  # as a need of a job is called
    assert set(ConstraintsObject.__annotations__) == held_to


async def test_what_events_tell_is_declared_for_each_kind_that_is_promised() -> None:
    promised = set(
        re.findall(r"`([a-z-]+)`", INTERFACES.read_text().partition("`event` (")[2].partition("and `data`")[0])
    )
    assert promised == set(EVENTS) | {UNREADABLE_LINE}
    for kind in ({"job": "7"}, {"nodes": "n1"}):
        with pytest.raises(ValidationError):
            judge_events([AuditLine(1, 0.0, "node-lost", kind)])
