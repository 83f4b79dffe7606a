"""Logs through the agents."""

from __future__ import annotations

import asyncio

from colane.server.views.logs import NEXT_OFFSET_HEADER
from tests.server.harness import DEADLINE_S, World, finished, node, world

PATH = "/log/1/1"


async def started(w: World, **fields: int) -> None:
    await w.good("POST", "/node", node())
    await w.submit(**fields)


async def test_a_range_from_the_start_and_from_the_end() -> None:
    async with world() as w:
        await started(w)
        w.agents.logs[PATH] = b"one\ntwo\nthree\n"
        for query, data, behind in (
            ("", b"one\ntwo\nthree\n", 14),
            ("?offset=4&limit=4", b"two\n", 8),
            ("?offset=-6", b"three\n", 14),
        ):
            answer = await w.http.get(f"/job/1/log{query}")
            assert (answer.content, answer.headers[NEXT_OFFSET_HEADER]) == (data, str(behind))
            assert answer.headers["content-type"].startswith("text/plain")


async def test_a_range_is_whole_though_the_agent_gives_it_in_pieces() -> None:
    async with world() as w:
        await started(w)
        w.agents.logs[PATH] = bytes(range(100))
        w.agents.piece_bytes = 7
        assert (await w.http.get("/job/1/log")).content == bytes(range(100))
        answer = await w.http.get("/job/1/log?offset=-50&limit=20")
        assert answer.content == bytes(range(50, 70))
        assert answer.headers[NEXT_OFFSET_HEADER] == "70"


async def test_before_the_start_there_is_an_empty_one() -> None:
    async with world() as w:
        await w.submit()
        answer = await w.http.get("/job/1/log")
        assert (answer.status_code, answer.content, answer.headers[NEXT_OFFSET_HEADER]) == (200, b"", "0")
        await w.good("POST", "/node", node())
        assert (await w.http.get("/job/1/log")).content == b""


async def test_an_ended_job_keeps_its_log() -> None:
    async with world() as w:
        await started(w)
        w.agents.logs[PATH] = b"bye\n"
        await w.good("POST", "/finished_job", finished(1))
        assert (await w.http.get("/job/1/log")).content == b"bye\n"
        assert (await w.http.get("/job/1/log?follow=true")).content == b"bye\n"


async def test_an_agent_that_is_down_and_a_node_that_is_gone() -> None:
    async with world() as w:
        await started(w)
        w.agents.down = True
        for query in ("", "?follow=true"):
            status, detail = await w.refused("GET", f"/job/1/log{query}")
            assert (status, detail) == (502, "the agent of node n1 does not answer: connection refused")
        await w.good("POST", "/finished_job", finished(1))
        await w.good("DELETE", "/nodes")
        assert (await w.refused("GET", "/job/1/log"))[0] == 404


async def test_following_sees_growth_further_attempts_and_the_end() -> None:
    async with world() as w:
        await started(w, retries=1)
        w.agents.logs[PATH] = b"a"
        following = asyncio.create_task(w.http.get("/job/1/log?follow=true"))
        async with asyncio.timeout(DEADLINE_S):
            await w.agents.read.wait()
        w.agents.logs[PATH] += b"b"
        await w.good("POST", "/finished_job", finished(1, exit_code=1))
        w.agents.logs["/log/1/2"] = b"c"
        await w.good("POST", "/finished_job", finished(1, attempt=2))
        async with asyncio.timeout(DEADLINE_S):
            answer = await following
        assert answer.content == b"abc"


async def test_following_ends_with_the_scheduler() -> None:
    async with world() as w:
        await started(w)
        w.agents.logs[PATH] = b"a"
        following = asyncio.create_task(w.http.get("/job/1/log?follow=true"))
        async with asyncio.timeout(DEADLINE_S):
            await w.agents.read.wait()
        w.service.end_streams()
        async with asyncio.timeout(DEADLINE_S):
            assert (await following).content == b"a"
