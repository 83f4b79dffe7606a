"""What is submitted by the short way fares as by FastAPI's, which a query sends it; what is valid needs no other."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from colane.api.jobs import ReasonObject
from colane.model.reason import Reason, Why
from colane.server.http.refusals import DeclaredRoute
from colane.server.writer import ledger
from colane.server.writer.ledger import explain
from tests.server.harness import SLEEP, World, finished, node, report, world

JSON = {"Content-Type": "application/json"}
LONG = "?not_a_parameter"
BODIES = {
    "plain": b'{"command": ["sleep", "5"]}',
    "twice the same field": b'{"command": ["a"], "command": ["sleep", "5"], "env": {"A": "1", "A": "2"}}',
    "whole number as a fraction": b'{"command": ["a"], "priority": -1.0}',
    "number as text": b'{"command": ["a"], "cores": "1"}',
    "seconds as a whole number": b'{"command": ["a"], "time_limit_s": 60}',
    "not finite": b'{"command": ["a"], "time_limit_s": NaN}',
    "larger than a number may be": b'{"command": ["a"], "cores": 1e400}',
    "sizes": b'{"command": ["a"], "gpus": "1..4"}',
    "sizes in a list": b'{"command": ["a"], "gpus": [1, 2]}',
    "no whole sizes": b'{"command": ["a"], "gpus": [1.0]}',
    "half a character": b'{"command": ["\\ud800"]}',
    "no UTF-8": b'{"command": ["\xff"]}',
    "unknown field": b'{"command": ["a"], "prio": 1}',
    "empty command": b'{"command": []}',
    "nothing": b"",
    "null": b"null",
    "no object": b"[1]",
    "no JSON": b"{",
    "more than JSON": b'{"command": ["a"]} {}',
}


async def sent(w: World, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    answer = await w.http.post(path, content=body, headers={**JSON, **headers})
    told = answer.json()
    return answer.status_code, told if answer.status_code >= 400 else sorted(told)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_both_ways_judge_alike(body: bytes) -> None:
    async with world() as w:
        assert await sent(w, "/job", body) == await sent(w, f"/job{LONG}", body)
        many = b"[" + body + b"]"
        assert await sent(w, "/jobs", many) == await sent(w, f"/jobs{LONG}", many)
        jobs = [await w.good("GET", f"/job/{each['id']}/request") for each in await w.good("GET", "/jobs")]
        assert all(job == jobs[0] for job in jobs)


@pytest.mark.parametrize("key", ["", "k" * 201, "é" * 100])
async def test_both_ways_judge_keys_alike(key: str) -> None:
    async with world() as w:
        headers = httpx.Headers({**JSON, "Idempotency-Key": key}, encoding="utf-8")
        answers = [await w.http.post(path, json=SLEEP, headers=headers) for path in ("/job", f"/job{LONG}")]
        assert answers[0].status_code == answers[1].status_code
        assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize(("path", "body"), [("/job", SLEEP), ("/jobs", [SLEEP] * 2)])
async def test_a_key_is_known_whichever_way_it_comes(path: str, body: Any) -> None:
    async with world() as w:
        key = {"Idempotency-Key": "k"}
        first, again, long = [await w.post(to, body, **key) for to in (path, path, path + LONG)]
        assert first.json() == again.json() == long.json()
        other = await w.refused("POST", path, {**SLEEP, "name": "b"} if path == "/job" else [SLEEP], **key)
        assert other[0] == 422


async def test_what_is_valid_does_without_fastapi(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as w:
        monkeypatch.setattr(DeclaredRoute, "handle", _never, raising=False)
        assert (await w.post("/node", node())).json()["name"] == "n1"
        assert (await w.post("/job", SLEEP, **{"Idempotency-Key": "k"})).json() == {"id": 1}
        assert (await w.post("/jobs", [SLEEP] * 2)).json() == {"ids": [2, 3]}
        assert (await w.post("/node/n1/report", report())).status_code == 200
        launch = await w.http.get("/job/1/launch")
        assert (launch.json()["command"], launch.headers["cache-control"]) == (SLEEP["command"], "no-store")
        assert (await w.post("/finished_job", finished(1))).json()["believed"]
        assert not (await w.post("/finished_job", finished(1))).json()["believed"]
        assert (await w.post("/finished_jobs", [finished(1), finished(2)])).json()["believed"] == [False, True]
        monkeypatch.undo()
        for number in ("0", "x", "9" * 30, "1e3"):
            assert (await w.refused("GET", f"/job/{number}/launch"))[0] == 422
        assert await w.refused("POST", "/job", {}) == (
            422,
            [{"field": "command", "message": "is required (or model_name for a built-in training job)"}],
        )


async def _never(*_: object) -> None:
    raise AssertionError("a request went FastAPI's way")


async def test_the_reason_that_all_jobs_of_a_batch_have_is_put_into_words_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Reason] = []

    def explained(reason: Reason) -> ReasonObject:
        asked.append(reason)
        return explain(reason)

    monkeypatch.setattr(ledger, "explain", explained)
    async with world() as w:
        ids = (await w.good("POST", "/jobs", [SLEEP] * 20))["ids"]
        lines = [line.body for line in w.service.store.audit(0, 100) if line.kind == "job"]
    assert [line["job"] for line in lines if line["why"] == Why.SUBMITTED] == ids
    assert [reason.why for reason in asked].count(Why.SUBMITTED) == 1
