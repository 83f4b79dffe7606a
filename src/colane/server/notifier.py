"""Nudges: tell a node's agent that something changed, never what. A lost nudge costs one reconcile period."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import httpx

NUDGE_TIMEOUT_S: Final = 2.0
"""An agent answers at once; one that does not will look by itself soon."""

NUDGES_AT_ONCE: Final = 64
"""Bounds sockets when a plan touches a thousand nodes."""

log = logging.getLogger(__name__)


class Notifier:
    """Sends at most one nudge per node at a time; changes during one give one more.

    Args:
        client: Carries the token where there is one.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._limit = asyncio.Semaphore(NUDGES_AT_ONCE)
        self._again: dict[str, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def nudge(self, addresses: Iterable[str]) -> None:
        """Nudge agents by base URL, without waiting."""
        for address in addresses:
            if address in self._again:
                self._again[address] = True
            elif address:
                self._again[address] = False
                task = asyncio.create_task(self._send(address))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send(self, address: str) -> None:
        try:
            more = True
            while more:
                self._again[address] = False
                async with self._limit:
                    await self._post(address)
                more = self._again[address]
        finally:
            del self._again[address]

    async def _post(self, address: str) -> None:
        try:
            await self._client.post(f"{address}/run", json={}, timeout=NUDGE_TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            log.info("agent at %s was not reached: %s", address, error or type(error).__name__)

    async def close(self) -> None:
        """Give up nudges that are under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
