"""An assistant over the Model Context Protocol: a real one's client, `colane mcp` and a scheduler process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from colane.client.client import Client
from colane.integrations.assistant import CHANGING, LOOKING
from tests.server.harness import launched, node, report
from tests.server.processes import Scheduler, scheduler

pytestmark = pytest.mark.live
COMMAND = {"command": [sys.executable, "-c", "pass"], "options": {"name": "train"}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state")) as started:
        started.http.post("/node", json=node(gpus=2)).raise_for_status()
        yield started
        assert started.errors() == ""


@asynccontextmanager
async def assistant(running: Scheduler) -> AsyncIterator[ClientSession]:
    env = {**os.environ, "COLANE_URL": running.url, "COLANE_TOKEN": running.token}
    command = StdioServerParameters(command=sys.executable, args=["-m", "colane.cli", "mcp"], env=env)
    async with stdio_client(command) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, tool: str, **given: Any) -> Any:
    answer = await session.call_tool(tool, given)
    text = "".join(getattr(part, "text", "") for part in answer.content)
    assert not answer.isError, text
    return json.loads(text)


async def refused(session: ClientSession, tool: str, **given: Any) -> str:
    answer = await session.call_tool(tool, given)
    text = "".join(getattr(part, "text", "") for part in answer.content)
    assert answer.isError, text
    return text


async def test_it_plans_submits_looks_and_cancels_in_its_users_name(running: Scheduler) -> None:
    with Client(running.url, running.token) as client:
        async with assistant(running) as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == {*LOOKING, *CHANGING}
            assert all(tools[name].annotations.readOnlyHint for name in LOOKING)  # type: ignore[union-attr]
            assert not any(tools[name].annotations.readOnlyHint for name in CHANGING)  # type: ignore[union-attr]
            plan = await call(session, "plan", **COMMAND)
            assert plan["jobs"][0]["sentence"] == "would start at once on n1/0"
            assert client.live_jobs() == []
            job = (await call(session, "submit", plan_index=plan["index"]))["id"]
            shown = await call(session, "job", job=str(job))
            assert (shown["labels"], shown["gpus"]) == ({"through": "mcp"}, ["n1/0"])
            assert shown["workdir"] == str(Path.cwd())
            assert [one["id"] for one in (await call(session, "queue"))["jobs"]] == [job]
            assert (await call(session, "why", job=str(job)))["why"] == "free-gpu"
            assert (await call(session, "nodes"))["nodes"][0]["jobs"] == [{"id": job, "gpus": [0]}]
            other = await call(session, "whatif", job=str(job), changes={"gpus": 2})
            assert other["jobs"][0]["changes"][0]["option"] == "--gpus 1"
            planned = await call(session, "plan_change", deed="cancel", job=str(job))
            assert (planned["would"][:7], client.job(job)["state"]) == ("end the", "assigned")
            assert (await call(session, "change", plan_index=planned["index"]))["state"] == "stopping"
            assert " through mcp" in str(client.job(job)["reason"])


async def test_it_changes_nothing_that_it_has_not_planned(running: Scheduler) -> None:
    with Client(running.url, running.token) as client:
        job = client.submit({"command": ["true"], "gpus": 0, "cores": 1})
        async with assistant(running) as first:
            plan = await call(first, "plan", **COMMAND)
            planned = await call(first, "plan_change", deed="cancel", job=str(job))
            async with assistant(running) as second:
                assert "was made in this session" in await refused(second, "submit", plan_index=plan["index"])
                assert "was planned in this session" in await refused(second, "change", plan_index=planned["index"])
            running.http.post("/node/n1/report", json=report(launched(job))).raise_for_status()
            said = await refused(first, "change", plan_index=planned["index"])
            assert f"job {job} is not as it was when this was planned: by now it is " in said
            assert client.job(job)["state"] == "launching"


async def test_what_it_asks_wrongly_is_said_in_words(running: Scheduler) -> None:
    async with assistant(running) as session:
        assert "there is no job 999" in await refused(session, "job", job="999")
        assert "got 'x'" in await refused(session, "why", job="x")
        assert "deed: must be one of cancel, " in await refused(session, "plan_change", deed="kill", job="1")
        said = await refused(session, "plan", command=["true"], options={"gpus": 99})
        assert "gpus: asks for 99" in said
        said = await refused(session, "plan", command=["true"], options={"gpu": 1})
        assert "gpus" in said
        assert "Traceback" not in said


async def test_arguments_that_a_tool_does_not_take_are_refused(running: Scheduler) -> None:
    """Of every tool; a job's fields are told their place."""
    async with assistant(running) as session:
        for tool in (await session.list_tools()).tools:
            assert tool.inputSchema["additionalProperties"] is False
            said = await refused(session, tool.name, surely_not=1)
            assert said.startswith(f"{tool.name} takes no 'surely_not', but "), said
        assert await refused(session, "plan", command=["true"], gpus=2) == (
            "plan takes no 'gpus', but command, workdir, options; fields of a job go into options"
        )
        assert "whatever" in await refused(session, "plan", command=["true"], options={"whatever": 2})
