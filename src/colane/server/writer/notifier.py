"""Nudges: tell a node's agent that something changed, never what. A lost nudge costs one reconcile period."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import httpx

from colane.server.board.read_model import AgentDoor

NUDGE_TIMEOUT_S: Final = 2.0  # an agent answers at once; one that does not will look by itself soon

NUDGES_AT_ONCE: Final = 64  # bounds sockets when a plan touches a thousand nodes

NODES_KEPT: Final = 4096  # nudges of so many agents are kept as they were written

log = logging.getLogger(__name__)


class Notifier:
    """Sends at most one nudge per node at a time; changes during one give one more.

    Args:
        transport: Reaches agents; asked without a client, whose redirects, cookies and merged headers a nudge has no
            use for.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport
        self._limit = asyncio.Semaphore(NUDGES_AT_ONCE)
        self._again: dict[AgentDoor, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def nudge(self, doors: Iterable[AgentDoor]) -> None:
        """Nudge agents, without waiting."""
        for door in doors:
            if door in self._again:
                self._again[door] = True
            elif door.address:
                self._again[door] = False
                task = asyncio.create_task(self._send(door))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def reach(self, doors: Iterable[AgentDoor]) -> list[bool]:
        """Nudge agents, and say which of them have answered."""

        async def one(door: AgentDoor) -> bool:
            async with self._limit:
                return await self._post(door)

        return await asyncio.gather(*map(one, doors))

    async def _send(self, door: AgentDoor) -> None:
        try:
            more = True
            while more:
                self._again[door] = False
                async with self._limit:
                    await self._post(door)
                more = self._again[door]
        finally:
            del self._again[door]

    async def _post(self, door: AgentDoor) -> bool:
        try:
            answer = await self._transport.handle_async_request(_nudge(door))
            await answer.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.info("agent at %s was not reached: %s", door.address, error or type(error).__name__)
            return False
        return True

    async def close(self) -> None:
        """Give up nudges that are under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@lru_cache(maxsize=NODES_KEPT)
def _nudge(door: AgentDoor) -> httpx.Request:
    """What an agent is sent, the same each time."""
    limits = httpx.Timeout(NUDGE_TIMEOUT_S).as_dict()
    return httpx.Request("POST", f"{door.address}/run", json={}, headers=door.headers, extensions={"timeout": limits})
