"""Logs of jobs, read through the agents that keep them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import httpx

from colane.api.terminals import WAIT_MAX_S, TerminalBody
from colane.model.job import Job
from colane.model.words import count
from colane.server.board.read_model import AgentDoor
from colane.server.ground.problems import RefusedError
from colane.server.store.attempts import AttemptRecord, present
from colane.server.store.documents import sentence

READ_TIMEOUT_S: Final = 10.0
CHUNK_BYTES: Final = 64 * 1024  # read at once from an agent while following, and sent at once

FOLLOW_PERIOD_S: Final = 0.25  # how often an agent is asked for more of a log that is being followed
LOOKS_OF_ONE_PER_S: Final = 40  # for the logs that one user follows; where these are many, each more seldom
LOOKS_PER_S: Final = 160  # the same for those of all
RANGES_OF_ONE_MAX: Final = 4  # read for one user at a time: each is kept whole until it is taken

NEXT_OFFSET_HEADER: Final = "X-Colane-Next-Offset"


class LogPlace(NamedTuple):
    """Where an attempt's log lies, and how the attempt stands."""

    job: int  # the job
    attempt: int  # the attempt; 0 of a job that has had none
    node: str  # the node whose agent keeps it; empty where none does
    door: AgentDoor  # how that is called; without an address when the node is gone
    has_started: bool = False  # whether its process is known to have started, so that there is a log
    is_over: bool = False  # whether it has ended
    has_successor: bool = False  # whether the job has begun another attempt since
    has_job_ended: bool = False  # whether there will be no other
    why: str = ""  # why it ended, as far as is known


class Reading(NamedTuple):
    """What is to be read of a job's logs."""

    attempt: int | None = None  # the first attempt; 0 for the first that is known of, None for the latest
    offset: int = 0  # where in its log
    is_joined: bool = False  # whether those of further attempts follow
    follows: bool = False  # whether to go on until the job, or that one attempt, has ended


class Chunk(NamedTuple):
    """Part of a log and the offset behind it."""

    data: bytes
    next_offset: int


Locate = Callable[[int | None], Awaitable[LogPlace]]
"""Where the log of an attempt of a job lies now; of its latest for None, of the first that is known of for 0."""


def attempt_of(job: Job, known: tuple[AttemptRecord, ...], number: int) -> AttemptRecord:
    """Return an attempt of a job; a job of an older Colane tells of its last one alone.

    Raises RefusedError: 404, there is none of this number, or nothing is kept of it.
    """
    found = next((record for record in known if record.number == number), None)
    if found is not None:
        return present(job, found)
    if number > job.attempt:
        raise RefusedError.because(404, f"job {job.id} has had {count(job.attempt, 'attempt')}", "attempt")
    if number < job.attempt:
        raise RefusedError.because(404, f"where attempt {number} of job {job.id} ran is not kept any more", "attempt")
    is_over = job.placement is None or job.has_ended
    end_s = (job.end_s or job.since_s or job.submit_s) if is_over and number else None
    why = sentence(job.reason) if is_over and job.reason is not None else ""
    node = "" if job.placement is None else job.placement.node
    return AttemptRecord(number, node, job.submit_s, job.start_s, end_s, why)


async def read_log(client: httpx.AsyncClient, place: LogPlace, offset: int, limit: int) -> Chunk:
    """Read a range of a log; a negative offset counts from the end.

    Raises RefusedError: 404, the node or the log is gone; 502, its agent does not answer.
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
        if place.is_over and place.has_started:
            raise RefusedError.because(
                404, f"node {place.node} does not keep the log of attempt {place.attempt} any more"
            )
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


class LogReaders:
    """Who reads logs, by user: what one reads leaves time and memory for all else."""

    def __init__(self) -> None:
        self._following: Counter[str] = Counter()
        self.ranges = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(RANGES_OF_ONE_MAX))

    @contextmanager
    def following(self, user: str) -> Iterator[Callable[[], float]]:
        """Count one that follows, and tell after how many seconds it looks again."""
        known = self._following
        known[user] += 1
        try:
            yield lambda: max(FOLLOW_PERIOD_S, known[user] / LOOKS_OF_ONE_PER_S, known.total() / LOOKS_PER_S)
        finally:
            known[user] -= 1


async def read_through(
    client: httpx.AsyncClient, locate: Locate, reading: Reading, stopping: asyncio.Event, again_s: Callable[[], float]
) -> AsyncIterator[bytes]:
    """Yield logs of a job's attempts in order, with a line between two that says why the former ended.

    What cannot be read is told in a line, and reading goes on behind it; only where there is nothing else to read it is
    refused. Raises RefusedError: see `read_log`.
    """
    place, offset = await locate(reading.attempt), reading.offset
    has_read, problem, line_end = False, "", b""
    while not stopping.is_set():
        try:
            async for chunk in _drain(client, place, offset):
                yield chunk.data
                offset, line_end = chunk.next_offset, b"" if chunk.data.endswith(b"\n") else b"\n"
            has_read, problem = True, ""
        except RefusedError as refused:
            if not (has_read or (reading.is_joined and place.has_successor)):
                raise
            if str(refused) != problem:
                problem = str(refused)
                yield line_end + f"[attempt {place.attempt}: {problem}]\n".encode()
                line_end = b""
        now = await locate(place.attempt or reading.attempt)
        if place.is_over and reading.is_joined and now.has_successor:
            yield line_end + _between(now)
            line_end = b""
            place, offset, has_read, problem = await locate(now.attempt + 1), 0, True, ""
        elif (place.is_over and not reading.is_joined) or (now.has_job_ended and place.is_over >= now.is_over):
            return
        elif (now.is_over, now.attempt) != (place.is_over, place.attempt):
            place = now  # what it wrote between the last read and its end is still to be read
        elif reading.follows:
            await _pause(stopping, again_s())
            place = now
        else:
            return


def _between(place: LogPlace) -> bytes:
    """The line between an attempt that is over and the next."""
    where = f" on {place.node}" if place.node else ""
    why = place.why or "nothing is known of why"
    return f"[attempt {place.attempt}{where} ended: {why}; attempt {place.attempt + 1} follows]\n".encode()


async def _drain(client: httpx.AsyncClient, place: LogPlace, offset: int) -> AsyncIterator[Chunk]:
    """Yield what there is now, piece by piece."""
    while (chunk := await read_log(client, place, offset, CHUNK_BYTES)).data:
        yield chunk
        offset = chunk.next_offset


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return


# -- Terminals of jobs, at which their owners type through the agents that run them.


WAITS_MAX: Final = 64
WAITS_OF_ONE_MAX: Final = 16
"""Who waits for output beyond so many, of all users or at terminals of one, has an answer at once, and asks again: each
keeps a connection to an agent."""


class Terminals:
    """Passes on what is typed, and what is shown.

    Args:
        client: What agents are called by.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._waiting: Counter[str] = Counter()

    async def at(self, place: LogPlace, said: TerminalBody, user: str) -> Chunk:
        """Type at the terminal of an attempt of a user's, and wait for what it shows.

        Raises RefusedError: 409, it has none; 503, its agent cannot be reached; 502, it does not answer; 404, its node
        is gone.
        """
        if place.attempt == 0 or not place.node or not (place.has_started or place.is_over):
            return Chunk(b"", max(said.offset or 0, 0))  # it is about to be started
        if not place.door.address:
            raise RefusedError.because(404, f"its terminal was on node {place.node}, which is not registered any more")
        if self._waiting[user] >= WAITS_OF_ONE_MAX or self._waiting.total() >= WAITS_MAX:
            said = said.model_copy(update={"wait_s": 0.0})
        self._waiting[user] += 1
        try:
            answer = await self._client.post(
                f"{place.door.address}/terminal/{place.job}/{place.attempt}",
                content=said.model_dump_json(exclude_defaults=True),
                headers={**place.door.headers, "Content-Type": "application/json"},
                timeout=READ_TIMEOUT_S + WAIT_MAX_S,
            )
        except httpx.ConnectError as error:
            said_why = f"the agent of node {place.node} cannot be reached, so nothing was typed: {error}"
            raise RefusedError.because(503, said_why) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            what = str(error) or type(error).__name__
            raise RefusedError.because(502, f"the agent of node {place.node} does not answer: {what}") from error
        finally:
            self._waiting[user] -= 1
        if answer.status_code == httpx.codes.NOT_FOUND:
            fix = "submit it with --pty, to agents that know of terminals"
            raise RefusedError.because(409, f"job {place.job} has no terminal: {fix}")
        if not answer.is_success:
            raise RefusedError.because(502, f"the agent of node {place.node} answered {answer.status_code}")
        behind = answer.headers.get(NEXT_OFFSET_HEADER, "")
        return Chunk(answer.content, int(behind) if behind.isdecimal() else max(said.offset or 0, 0))
