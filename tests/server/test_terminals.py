"""Who may type at the terminal of a job, and what is made of what an agent answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from colane.api.terminals import TerminalBody
from colane.server.board.read_model import AgentDoor
from colane.server.views.logs import WAITS_OF_ONE_MAX, Chunk, LogPlace, Terminals
from tests.server.harness import node, world
from tests.server.test_users import guest

CALLERS: dict[str, tuple[dict[str, Any], bool]] = {
    "owner": ({"user": "ann"}, True),
    "another": ({"user": "bob"}, False),
    "operator": ({"role": "operator"}, False),
}


@pytest.mark.parametrize("caller", CALLERS)
async def test_its_owner_alone_types(caller: str) -> None:
    holder, may = CALLERS[caller]
    async with world() as w:
        await w.submit(user="ann", pty=True, env={})
        asking = await guest(w, "t", **holder)
        answer = await asking.post("/job/1/terminal", {"typed": "bHMK"})
        assert answer.status_code == (200 if may else 403), answer.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"typed": "not base 64"}, "typed"),
        ({"typed": "QUFB" * 2000}, "typed"),
        ({"rows": 100_000}, "rows"),
        ({"wait_s": 3600}, "wait_s"),
        ({"sort": 1}, "sort"),
    ],
)
async def test_what_cannot_be_said_there_is_refused_with_its_name(body: dict[str, Any], field: str) -> None:
    async with world() as w:
        await w.submit(pty=True)
        status, said = await w.refused("POST", "/job/1/terminal", body)
        assert (status, field in str(said)) == (422, True)


async def test_a_job_is_launched_with_one_where_that_is_asked_for() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=2))
        await w.submit(pty=True)
        await w.submit()
        assert (await w.good("GET", "/job/1/launch"))["pty"] is True
        assert "pty" not in await w.good("GET", "/job/2/launch")
        assert (await w.good("GET", "/job/1/request"))["pty"] is True


async def test_those_of_one_user_who_wait_leave_room_for_others() -> None:
    waits, arrived, goes_on = list[float](), asyncio.Semaphore(0), asyncio.Event()

    async def agent(request: httpx.Request) -> httpx.Response:
        waits.append(json.loads(request.content).get("wait_s", 0.0))
        arrived.release()
        await goes_on.wait()
        return httpx.Response(200)

    place = LogPlace(1, 1, "n1", AgentDoor("http://n1:1", "secret"), has_started=True)
    async with httpx.AsyncClient(transport=httpx.MockTransport(agent)) as client:
        terminals = Terminals(client)

        async def sit(user: str, count: int) -> list[asyncio.Task[Chunk]]:
            tasks = [asyncio.create_task(terminals.at(place, TerminalBody(wait_s=9.0), user)) for _ in range(count)]
            for _ in range(count):
                await arrived.acquire()
            return tasks

        asking = await sit("ann", WAITS_OF_ONE_MAX + 5)
        assert waits == [9.0] * WAITS_OF_ONE_MAX + [0.0] * 5
        asking += await sit("bob", 1)
        assert waits[-1] == 9.0
        goes_on.set()
        await asyncio.gather(*asking)
        await asyncio.gather(*await sit("ann", 1))
        assert waits[-1] == 9.0
