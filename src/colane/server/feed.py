"""Server-sent events: every audit line, in order, without gaps, resumable by its number.

A subscriber is only told *that* there is more and reads it himself, from memory when it is recent, else from the
store; a slow one costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

from colane.server.store import AuditEntry, AuditLine, Store

RECENT_LINES_MAX: Final = 2_000
"""Lines kept in memory, under 2 MB: a subscriber no further behind than this costs no read of the store."""

LINES_AT_ONCE: Final = 500
"""Lines read from the store at once by a subscriber that is further behind."""


class Feed:
    """The newest audit lines, and whoever waits for more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: deque[AuditLine] = deque(maxlen=RECENT_LINES_MAX)
        self._more = asyncio.Event()
        self._closed = False
        self.last_number = store.last_audit_number()

    def publish(self, last_number: int, entries: Sequence[AuditEntry]) -> None:
        """Take over lines that are durable now; `last_number` is that of the last of them."""
        first = last_number - len(entries) + 1
        for number, (at_s, kind, body) in enumerate(entries, start=first):
            self._recent.append(AuditLine(number, at_s, kind, body))
        self.last_number = last_number
        self._more.set()
        self._more = asyncio.Event()

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        self._more.set()

    async def follow(self, after: int) -> AsyncIterator[AuditLine]:
        """Yield every line with a number above `after`, until the feed is closed."""
        while not self._closed:
            more = self._more
            lines = await self._read(after)
            for line in lines:
                yield line
                after = line.number
            if not lines:
                await more.wait()

    async def _read(self, after: int) -> list[AuditLine]:
        if after >= self.last_number:
            return []
        if self._recent and self._recent[0].number <= after + 1:
            return [line for line in self._recent if line.number > after]
        return await asyncio.to_thread(self._store.audit, after, LINES_AT_ONCE)
