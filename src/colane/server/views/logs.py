"""Logs of jobs, read through the agents that keep them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

import httpx

from colane.server.http.problems import RefusedError
from colane.server.writer.board import AgentDoor

READ_TIMEOUT_S: Final = 10.0
CHUNK_BYTES: Final = 256 * 1024
"""Read at once from an agent while following."""

FOLLOW_PERIOD_S: Final = 0.25
"""How often an agent is asked for more of a log that is being followed."""

NEXT_OFFSET_HEADER: Final = "X-Colane-Next-Offset"


class LogPlace(NamedTuple):
    """Where an attempt's log lies; the door has no address when its node is gone."""

    job: int
    attempt: int
    node: str
    door: AgentDoor
    live: bool


class Chunk(NamedTuple):
    """Part of a log and the offset behind it."""

    data: bytes
    next_offset: int


Locate = Callable[[], Awaitable[LogPlace]]
"""Where the log of a job's present attempt lies now."""


async def read_log(client: httpx.AsyncClient, place: LogPlace, offset: int, limit: int) -> Chunk:
    """Read a range of a log; a negative offset counts from the end.

    Raises:
        RefusedError: 404, the node is gone; 502, its agent does not answer.
    """
    if place.attempt == 0 or not place.node:
        return Chunk(b"", max(offset, 0))
    if not place.door.address:
        raise RefusedError.because(404, f"the log is on node {place.node}, which is not registered any more")
    url = f"{place.door.address}/log/{place.job}/{place.attempt}"
    asked = {"offset": offset, "limit": limit}
    try:
        answer = await client.get(url, params=asked, headers=place.door.headers, timeout=READ_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what = str(error) or type(error).__name__
        raise RefusedError.because(502, f"the agent of node {place.node} does not answer: {what}") from error
    if answer.status_code == httpx.codes.NOT_FOUND:
        return Chunk(b"", max(offset, 0))
    if not answer.is_success:
        raise RefusedError.because(502, f"the agent of node {place.node} answered {answer.status_code}")
    behind = answer.headers.get(NEXT_OFFSET_HEADER, "")
    return Chunk(answer.content, int(behind) if behind.isdecimal() else max(offset, 0) + len(answer.content))


async def read_range(client: httpx.AsyncClient, place: LogPlace, offset: int, limit: int) -> Chunk:
    """Read a range of a log whole, though an agent gives less at once; see `read_log`."""
    part = await read_log(client, place, offset, limit)
    pieces, behind = [part.data], part.next_offset
    while part.data and (left := limit - sum(map(len, pieces))) > 0:
        part = await read_log(client, place, behind, left)
        pieces.append(part.data)
        behind = part.next_offset
    return Chunk(b"".join(pieces), behind)


async def follow_log(
    client: httpx.AsyncClient, locate: Locate, offset: int, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield a log as it grows, through further attempts, until its job has ended and all is read."""
    place = await locate()
    while not stopping.is_set():
        async for chunk in _drain(client, place, offset):
            yield chunk.data
            offset = chunk.next_offset
        now = await locate()
        if now != place and (now.attempt, now.node) != (place.attempt, place.node):
            # What the old attempt wrote between the last read and its end.
            async for chunk in _drain(client, place, offset):
                yield chunk.data
            offset = 0
        elif now == place and not now.live:
            return
        elif now == place:
            await _pause(stopping)
        place = now


async def _drain(client: httpx.AsyncClient, place: LogPlace, offset: int) -> AsyncIterator[Chunk]:
    """Yield what there is now, piece by piece."""
    while (chunk := await read_log(client, place, offset, CHUNK_BYTES)).data:
        yield chunk
        offset = chunk.next_offset


async def _pause(stopping: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(FOLLOW_PERIOD_S):
            await stopping.wait()
    except TimeoutError:
        return
