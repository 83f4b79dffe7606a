"""A service whose user's policy fails: what runs goes on, nothing is lost, all are told, and a good pass mends it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.server.store.store import AuditLine
from tests.server.harness import World, finished, launched, node, report, world

from .files import BAD, EXAMPLE, written

OWN_POLICY = EXAMPLE.parents[1] / "how-to" / "own-policy.md"
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


async def test_the_migrating_policy_of_the_documents_makes_room() -> None:
    """Of two nodes with a job on one GPU each, one job goes to the other when one of two GPUs comes."""
    moving = EXAMPLE.with_name("makes_room.py")
    async with world(policy=f"{moving}:MakesRoom:min_runtime_before_preemption_s=0", tick_s=0.05) as service:
        for name in ("n1", "n2"):
            await service.good("POST", "/node", node(name, gpus=2, agent_id=name))
        jobs = [await service.submit(preemptible=True) for _ in range(4)]
        steps = {"at_s": 2.0, "first_step_s": 1.0, "steps": 5}
        at: dict[str, list[int]] = {"n1": [], "n2": []}
        for job in jobs:
            await service.line(started(job))
            at[(await service.good("GET", f"/job/{job}"))["gpus"][0].partition("/")[0]].append(job)
        for name, there in at.items():
            running = report(*(launched(job, progress=steps) for job in there), agent_id=name)
            await service.good("POST", f"/node/{name}/report", running)
            await service.good("POST", "/finished_job", finished(there[1], node=name, agent_id=name))
        wide = await service.submit(gpus=2)
        moved = await service.line(lambda line: line.kind == "decision" and line.body["action"] == "resize")
        job = moved.body["job"]
        left, taken = ("n1", "n2") if job in at["n1"] else ("n2", "n1")
        why = await service.good("GET", f"/job/{wide}/why")
        assert (why["why"], await service.state(wide)) == ("preempting", "queued")
        await service.good("POST", "/finished_job", finished(job, node=left, agent_id=left))
        await service.line(started(wide))
        assert {gpu.partition("/")[0] for gpu in (await service.good("GET", f"/job/{wide}"))["gpus"]} == {left}
        assert (await service.good("GET", f"/job/{job}"))["gpus"][0].startswith(taken)


def test_the_facts_that_the_documents_name_make_the_sentence_of_each_code() -> None:
    """With them a sentence can be told; without one of them, but those that have a default, it cannot."""
    rows = [
        line.split("|")[2:4] for line in OWN_POLICY.read_text().splitlines() if line.count("|") == 5 and "`" in line
    ]
    assert len(rows) > 5
    for code, named in rows:
        why = Why(code.strip().strip("`"))
        facts: dict[str, Any] = dict.fromkeys(re.findall(r"`(\w+)`", named), 1)
        assert sentence_of(Reason(why, facts, (7,)))
        for fact in facts.keys() - {"need", "gpu_type"}:
            with pytest.raises(KeyError, match=fact):
                sentence_of(Reason(why, {name: 1 for name in facts if name != fact}, (7,)))
