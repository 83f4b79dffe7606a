"""A service whose user's policy fails: what runs goes on, nothing is lost, all are told, and a good pass mends it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.server.store.store import AuditLine
from tests.server.harness import World, finished, launched, node, report, world

from .files import BAD, EXAMPLE, written

SETTINGS: dict[str, Any] = {"policy_budget_s": 0.2, "tick_s": 0.05}


def started(job: int) -> Callable[[AuditLine], bool]:
    return lambda line: line.kind == "decision" and line.body["job"] == job


async def one_runs_and_one_waits(service: World) -> tuple[int, int]:
    await service.good("POST", "/node", node(gpus=1))
    first = await service.submit()
    await service.line(started(first))
    await service.good("POST", "/node/n1/report", report(launched(first)))
    return first, await service.submit()


@pytest.mark.parametrize("case", BAD)
async def test_the_service_goes_on_and_says_why(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tail, expected = BAD[case]
    with caplog.at_level(logging.WARNING):
        async with world(policy=written(tmp_path, tail), **SETTINGS) as service:
            running, waiting = await one_runs_and_one_waits(service)
            health = await service.good("GET", "/health")
            assert (health["status"], health["policy"]) == ("degraded", "mine")
            assert expected in health["detail"]
            why = await service.good("GET", f"/job/{waiting}/why")
            assert why["why"] == "policy-failed"
            assert expected in why["sentence"]
            assert await service.state(running) == "launching"
            assert await service.state(waiting) == "queued"
            await service.good("POST", "/finished_job", finished(running))
            await service.line(started(waiting))
            assert await service.state(running) == "succeeded"
            healed = await service.good("GET", "/health")
            assert healed["status"] == "ok"
    said = [line.getMessage() for line in caplog.records if line.name == "colane.policyfiles.guard"]
    assert len(said) == 2
    assert expected in said[0]
    assert said[1] == "policy mine: plans again"


async def test_the_policy_of_the_documents_serves_jobs() -> None:
    async with world(policy=f"{EXAMPLE}:FewestRunning", tick_s=0.05) as service:
        await service.good("POST", "/node", node(gpus=2))
        jobs = [await service.submit(user=user) for user in ("ann", "ann", "ann", "bob")]
        await service.good("POST", "/node/n1/report", report(launched(jobs[0]), launched(jobs[1])))
        await service.good("POST", "/finished_job", finished(jobs[0]))
        await service.line(started(jobs[3]))
        assert [await service.state(job) for job in jobs] == ["succeeded", "launching", "queued", "assigned"]
        assert (await service.good("GET", f"/job/{jobs[2]}/why"))["why"] == "unknown-alone-first"
        assert (await service.good("GET", "/health"))["status"] == "ok"
