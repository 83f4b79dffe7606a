"""Random requests to a real scheduler and a real agent: no crash, and nothing changes that is not the sender's.

`COLANE_MESSAGES=50000 pytest tests/server/test_api_fuzz.py` sends so many to each; a failure names its seed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from colane.server.ground.access import digest_of
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.http_fuzz import Attacker, RequestMaker
from tests.server.harness import SLEEP, finished, launched, node, report
from tests.server.processes import Scheduler, scheduler

pytestmark = pytest.mark.live

MESSAGES = int(os.environ.get("COLANE_MESSAGES", "600"))
SEED = int(os.environ.get("COLANE_SEED", "20261122"))
KEPT = ("name", "user", "attempt", "gpus", "priority", "labels", "suspended", "start_s", "end_s")
"""Of a job; why it waits may change with who else does, and one that launches runs after a while."""
FORESEEN = frozenset({0, *range(100, 500), 502})
"""Statuses that may be answered; 502: an agent that is not there was asked for a log."""
BODIES: list[Any] = [
    SLEEP, [SLEEP], {"jobs": [SLEEP]}, {**SLEEP, "gpus": "1..4", "labels": {"a": "b"}, "env": {"A": "b"}},
    node(), report(launched(1), messages=["x"]), finished(1), {"to_host": True}, {"deadline_s": 5, "reason": "x"},
    {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": {"value": 0.5, "samples": 3}}, {"digest": digest_of("z")},
]  # fmt: skip


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Scheduler]:
    with scheduler(tmp_path, node_timeout_s=1e6) as started:  # no agent is there to speak for the node
        http = started.http
        http.post("/node", json=node(gpus=2)).raise_for_status()
        http.post("/tokens", json={"digest": digest_of("bob's"), "user": "bob"}).raise_for_status()
        http.post("/jobs", json=[{**SLEEP, "user": "ann", "name": "hers"}] * 3).raise_for_status()
        http.post("/node/n1/report", json=report(launched(1), launched(2))).raise_for_status()
        http.post("/finished_job", json=finished(2)).raise_for_status()
        yield started
        assert "Traceback" not in started.errors()


def of_others(attacked: Scheduler) -> dict[str, Any]:
    """What a user may not change."""
    known = {str(job): attacked.http.get(f"/job/{job}").json() for job in (1, 2, 3)}
    jobs = {number: {name: job[name] for name in KEPT} for number, job in known.items()}
    rest = {path: attacked.http.get(path).json() for path in ("/nodes", "/profiles", "/measurements")}
    tokens = [token for token in attacked.http.get("/tokens").json() if token["name"] != "bob"]
    whole = {**jobs, **rest, "tokens": tokens}
    for one in whole["/nodes"]:
        one["jobs"] = [job["id"] for job in one["jobs"] if job["id"] <= len(jobs)]
        one.pop("last_seen_s"), one.pop("generation"), one.pop("events")  # they move with all jobs
    return whole


def test_a_scheduler(attacked: Scheduler) -> None:
    described = attacked.http.get("/openapi.json").json()["paths"]
    paths = [path for path in described if path != "/events"]
    methods = {path: [method.upper() for method in described[path]] for path in paths}
    tokens = ("", "Bearer bob's", "Bearer bob's", "Bearer bob's", "Bearer wrong", "Basic YTpi", "\x7f")
    maker = RequestMaker(Random(SEED), [*paths, "/", "/docs", "//jobs", "/jobs/"], BODIES, tokens, methods)
    before = of_others(attacked)
    seen = assault(attacked.url, maker)
    assert of_others(attacked) == before
    assert attacked.http.get("/health").json()["status"] == "ok"
    assert seen[200] > MESSAGES // 50, "the senders know what they send"
    assert seen[422] > MESSAGES // 100


def assault(url: str, maker: RequestMaker) -> Counter[int]:
    """Send all messages and count what is answered."""
    attacker, seen = Attacker(url), Counter[int]()
    for number in range(MESSAGES):
        message, is_sound = maker.draw()
        status = attacker.send(message, is_sound=is_sound)
        assert status in FORESEEN, f"seed {SEED} message {number}: {status} to {message!r}"
        seen[status] += 1
    return seen


async def test_an_agent(tmp_path: Path) -> None:
    import asyncio  # noqa: PLC0415 - kept beside its one use

    fake = FakeScheduler()
    async with running(tmp_path, fake) as agent:
        await agent.until(lambda: fake.nodes)
        secret = fake.nodes["node-1"]["secret"]
        tokens = ("", f"Bearer {secret}", f"Bearer {secret}", "Bearer wrong")
        paths = ("/run", "/health", "/jobs/{job}/{attempt}/log", "/{any}", "//run")
        maker = RequestMaker(Random(SEED), paths, [{}, {"a": 1}], tokens)
        reports = len(fake.reports)
        seen = await asyncio.to_thread(assault, agent.address, maker)
        assert seen[200] > MESSAGES // 50
        await agent.until(lambda: len(fake.reports) > reports)
        assert (await agent.get("/health")).json()["jobs"] == 0
    assert not fake.ends
