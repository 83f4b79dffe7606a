"""Terminals of jobs, at which their owners type through the agents that run them."""

from __future__ import annotations

from collections import Counter
from typing import Final

import httpx

from colane.api.terminals import WAIT_MAX_S, TerminalBody
from colane.server.ground.problems import RefusedError
from colane.server.views.logs import NEXT_OFFSET_HEADER, READ_TIMEOUT_S, Chunk, LogPlace

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
