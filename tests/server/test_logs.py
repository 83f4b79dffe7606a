"""Logs through the agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from colane.server.views.logs import (
    CHUNK_BYTES,
    FOLLOW_PERIOD_S,
    LOOKS_OF_ONE_PER_S,
    LOOKS_PER_S,
    NEXT_OFFSET_HEADER,
    RANGES_OF_ONE_MAX,
    LogReaders,
)
from tests.server.harness import DEADLINE_S, World, finished, launched, node, report, world
from tests.server.test_users import guest

PATH = "/log/1/1"
BETWEEN = b"[attempt 1 on n1 ended: exited with code 1; attempt 2 follows]\n"


async def started(w: World, **fields: Any) -> None:
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
        assert answer.content == b"ab\n" + BETWEEN + b"c"


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


ONE, TWO = PATH, "/log/1/2"
AWAY = b"[attempt 1: node n1 does not keep the log of attempt 1 any more]\n"


async def two_attempts(w: World, state: str) -> None:
    """Bring job 1 into a state of its second attempt, the first having failed."""
    await started(w, retries=1)
    w.agents.logs |= {ONE: b"first\n", TWO: b"second\n"}
    await w.good("POST", "/node/n1/report", report(launched(1)))
    await w.good("POST", "/finished_job", finished(1, exit_code=1))
    if state != "assigned":
        await w.good("POST", "/node/n1/report", report(launched(1, attempt=2)))
    if state == "ended":
        await w.good("POST", "/finished_job", finished(1, attempt=2, exit_code=1))


@pytest.mark.parametrize("state", ["assigned", "running", "ended"])
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", b"second\n"),
        ("?attempt=1", b"first\n"),
        ("?attempt=1&offset=-3&limit=2", b"st"),
        ("?attempt=2", b"second\n"),
        ("?attempt=1&follow=true", b"first\n"),
        ("?joined=true", b"first\n" + BETWEEN + b"second\n"),
        ("?joined=true&offset=2", b"rst\n" + BETWEEN + b"second\n"),
        ("?joined=true&attempt=2&offset=3", b"ond\n"),
    ],
)
async def test_the_logs_of_several_attempts(state: str, query: str, said: bytes) -> None:
    async with world() as w:
        await two_attempts(w, state)
        answer = await w.http.get(f"/job/1/log{query}")
        assert (answer.status_code, answer.content) == (200, said)


async def test_following_all_attempts_from_the_first() -> None:
    async with world() as w:
        await two_attempts(w, "running")
        following = asyncio.create_task(w.http.get("/job/1/log?joined=true&follow=true"))
        async with asyncio.timeout(DEADLINE_S):
            await w.agents.read.wait()
        w.agents.logs[TWO] += b"more\n"
        await w.good("POST", "/finished_job", finished(1, attempt=2, exit_code=1))
        async with asyncio.timeout(DEADLINE_S):
            assert (await following).content == b"first\n" + BETWEEN + b"second\nmore\n"


async def test_following_from_before_the_first_attempt_misses_none() -> None:
    async with world() as w:
        await w.submit(retries=1)
        following = asyncio.create_task(w.http.get("/job/1/log?joined=true&follow=true"))
        w.agents.logs |= {ONE: b"first\n", TWO: b"second\n"}
        await w.good("POST", "/node", node())
        for attempt in (1, 2):
            await w.good("POST", "/node/n1/report", report(launched(1, attempt=attempt)))
            await w.good("POST", "/finished_job", finished(1, attempt=attempt, exit_code=1))
        async with asyncio.timeout(DEADLINE_S):
            assert (await following).content == b"first\n" + BETWEEN + b"second\n"


@pytest.mark.parametrize("follow", ["", "&follow=true"])
async def test_an_attempt_whose_log_is_gone_is_told_in_a_line(follow: str) -> None:
    async with world() as w:
        await two_attempts(w, "ended")
        del w.agents.logs[ONE]
        assert (await w.http.get(f"/job/1/log?joined=true{follow}")).content == AWAY + BETWEEN + b"second\n"
        gone = (404, "node n1 does not keep the log of attempt 1 any more")
        assert await w.refused("GET", f"/job/1/log?attempt=1{follow}") == gone


async def test_an_attempt_whose_node_is_away_is_told_in_a_line() -> None:
    async with world() as w:
        await two_attempts(w, "ended")
        w.agents.down = True
        text = (await w.http.get("/job/1/log?joined=true")).text
        said = "the agent of node n1 does not answer: connection refused"
        assert text.splitlines() == [
            f"[attempt 1: {said}]", *BETWEEN.decode().splitlines(), f"[attempt 2: {said}]",
        ]  # fmt: skip
        assert await w.refused("GET", "/job/1/log?attempt=2") == (502, said)


async def test_what_is_followed_outlives_an_agent_that_is_away_for_a_while() -> None:
    async with world() as w:
        await two_attempts(w, "running")
        following = asyncio.create_task(w.http.get("/job/1/log?joined=true&follow=true"))
        async with asyncio.timeout(DEADLINE_S):
            await w.agents.read.wait()
            w.agents.down = True
            await w.agents.refused.wait()
            w.agents.down = False
        w.agents.logs[TWO] += b"more\n"
        await w.good("POST", "/finished_job", finished(1, attempt=2, exit_code=1))
        async with asyncio.timeout(DEADLINE_S):
            text = (await following).text
        assert 1 <= text.count("does not answer") <= 2, "once for each attempt that was being read"
        assert text.endswith("more\n")


@pytest.mark.parametrize(("attempt", "said"), [(3, "job 1 has had 2 attempts"), (99, "job 1 has had 2 attempts")])
@pytest.mark.parametrize("query", ["", "&follow=true", "&joined=true"])
async def test_there_is_no_such_attempt(query: str, attempt: int, said: str) -> None:
    async with world() as w:
        await two_attempts(w, "ended")
        status, detail = await w.refused("GET", f"/job/1/log?attempt={attempt}{query}")
        assert (status, detail) == (404, [{"field": "attempt", "message": said}])


async def test_the_attempts_are_in_the_job() -> None:
    async with world() as w:
        await two_attempts(w, "running")
        first, second = (await w.good("GET", "/job/1"))["attempts"]
        assert (first["number"], first["node"], first["why"]) == (1, "n1", "exited with code 1")
        assert first["assigned_s"] <= first["start_s"] <= first["end_s"] <= second["assigned_s"] <= second["start_s"]
        assert (second["number"], second["end_s"], second["why"]) == (2, None, "")
        await w.good("POST", "/finished_job", finished(1, attempt=2, exit_code=3))
        assert [one["why"] for one in (await w.good("GET", "/job/1"))["attempts"]] == [
            "exited with code 1", "exited with code 3",
        ]  # fmt: skip


async def test_what_one_user_reads_is_kept_in_memory_for_few_readers_until_they_take_it() -> None:
    """Of 8 MiB each: 256 of them would be 2 GiB."""
    async with world() as w:
        await started(w, user="ann")
        w.agents.logs[PATH] = b"a" * (3 * CHUNK_BYTES)
        await guest(w, "secret", user="ann")
        sending, goes_on, reads, taken = asyncio.Semaphore(0), asyncio.Event(), list[str](), list[int]()
        log = w.agents._log

        def noted(request: httpx.Request) -> httpx.Response:
            reads.append(request.url.path)
            return log(request)

        w.agents._log = noted  # type: ignore[method-assign]

        async def read_slowly() -> None:
            async def receive() -> dict[str, Any]:
                await asyncio.Event().wait()
                raise AssertionError

            async def send(message: MutableMapping[str, Any]) -> None:
                taken.append(len(message.get("body", b"")))
                sending.release()
                await goes_on.wait()

            headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer secret")]
            scope = {"type": "http", "method": "GET", "path": "/job/1/log", "headers": headers, "query_string": b""}
            await w.app({**scope, "raw_path": b"/job/1/log", "http_version": "1.1", "scheme": "http"}, receive, send)

        readers = [asyncio.create_task(read_slowly()) for _ in range(3 * RANGES_OF_ONE_MAX)]
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(RANGES_OF_ONE_MAX):
                await sending.acquire()
            assert (await w.http.get("/job/1/log")).status_code == 200
            assert len(reads) == 2 * (RANGES_OF_ONE_MAX + 1), "each of a range, and of that nothing follows it"
            goes_on.set()
            await asyncio.gather(*readers)
        assert max(taken) == CHUNK_BYTES
        assert sum(taken) == len(readers) * 3 * CHUNK_BYTES


def test_where_many_follow_each_looks_more_seldom() -> None:
    readers = LogReaders()
    with ExitStack() as stack:

        def follow(user: str) -> Callable[[], float]:
            return stack.enter_context(readers.following(user))

        first = follow("ann")
        assert first() == FOLLOW_PERIOD_S
        for _ in range(199):
            follow("ann")
        bob = follow("bob")
        assert (200 / first(), bob()) == (LOOKS_OF_ONE_PER_S, 201 / LOOKS_PER_S)
        for number in range(439):
            follow(f"u{number}")
        assert (first(), bob()) == (5.0, 640 / LOOKS_PER_S)
    with readers.following("ann") as alone:
        assert alone() == FOLLOW_PERIOD_S
