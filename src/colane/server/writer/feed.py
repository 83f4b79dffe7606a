"""Server-sent events: every audit line, in order, without gaps, resumable by its number.

Subscribers are woken a few at a time with pauses between, so that thousands of them keep no request waiting.

A subscriber is only told *that* there is more and reads it itself, from memory when it is recent, else from the
store; a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from colane.model.job import JobId
from colane.server.board.read_model import ReadModel
from colane.server.ground.sight import Sight
from colane.server.store.store import FINISHED_JOBS, AuditEntry, AuditLine, Store, UnreadableError, job_key
from colane.server.store.unreadable import read_one

RECENT_LINES_MAX: Final = 2_000
"""Lines kept in memory, under 2 MB: a subscriber no further behind than this costs no read of the store."""

WOKEN_AT_ONCE: Final = 10
WAKE_PAUSE_S: Final = 0.02
"""Between two groups of subscribers, several times what a group takes. The first are told at once; the last of a
thousand hear two seconds later, of all that has happened until then."""

LINES_AT_ONCE: Final = 500  # lines read from the store at once by a subscriber that is further behind


class Feed:
    """The newest audit lines, and the subscribers that wait for more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: deque[AuditLine] = deque(maxlen=RECENT_LINES_MAX)
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._texts: dict[int, bytes] = {}
        self._is_waking = False
        self._closed = False
        self.last_number = store.last_audit_number()

    def publish(self, last_number: int, entries: Sequence[AuditEntry]) -> None:
        """Take over lines that are durable now; `last_number` is that of the last of them."""
        first = last_number - len(entries) + 1
        for number, (at_s, kind, body) in enumerate(entries, start=first):
            self._recent.append(AuditLine(number, at_s, kind, body))
        self.last_number = last_number
        if self._waiting and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def catch_up(self, last_number: int) -> None:
        """Take over lines that are in the store and were not published, as of a commit whose answer was an error."""
        if last_number != self.last_number:
            self._recent.clear()
            self.publish(last_number, ())

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        self._release(len(self._waiting))

    def _wake(self) -> None:
        """Wake the group that has waited longest, the next one a little later."""
        self._release(WOKEN_AT_ONCE)
        self._is_waking = bool(self._waiting)
        if self._is_waking:
            asyncio.get_running_loop().call_later(WAKE_PAUSE_S, self._wake)

    def _release(self, count: int) -> None:
        for waiting in list(islice(self._waiting, count)):
            del self._waiting[waiting]
            if not waiting.done():
                waiting.set_result(None)

    async def follow(self, after: int) -> AsyncIterator[AuditLine]:
        """Yield every line with a number above `after`, until the feed is closed."""
        async for lines in self.batches(after):
            for line in lines:
                yield line

    async def batches(self, after: int) -> AsyncIterator[list[AuditLine]]:
        """Yield the same lines, all that there are at a time."""
        while not self._closed:
            known = self.last_number
            lines = await self._read(after)
            if lines:
                after = lines[-1].number
                yield lines
            elif known == self.last_number and not self._closed:
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting[waiting] = None
                try:
                    await waiting
                finally:
                    self._waiting.pop(waiting, None)

    def text(self, line: AuditLine) -> bytes:
        """Return a line as a server-sent event: id, event (kind) and data (JSON); made once for all subscribers."""
        known = self._texts.get(line.number)
        if known is None:
            data = json.dumps({"at_s": line.at_s, **line.body})
            known = f"id: {line.number}\r\nevent: {line.kind}\r\ndata: {data}\r\n\r\n".encode()
            self._texts[line.number] = known
            if len(self._texts) > RECENT_LINES_MAX:
                del self._texts[next(iter(self._texts))]
        return known

    async def _read(self, after: int) -> list[AuditLine]:
        if after >= self.last_number:
            return []
        if self._recent and self._recent[0].number <= after + 1:
            return [line for line in self._recent if line.number > after]
        published = self.last_number  # what is durable and not on the board yet is told once it is
        lines = await asyncio.to_thread(self._store.audit, after, LINES_AT_ONCE)
        return [line for line in lines if line.number <= published]


OF_A_JOB: Final = frozenset({"job", "decision", "attempt-ended"})  # kinds of audit lines that tell of one job
OF_A_NODE: Final = frozenset({
    "node-registered", "node-lost", "node-returned", "node-removed", "node-drained", "node-undrained", "node-notice",
    "node-reserved", "node-set-apart",
})  # fmt: skip
"""Kinds that tell of no job at all; all others may name any user's."""


def lines_for(sight: Sight, lines: Sequence[AuditLine], read_model: ReadModel, store: Store) -> list[AuditLine]:
    """Return those lines of a feed that the caller may see; reads the store for jobs that have ended.

    Raises StoreError: the store cannot be read.
    """
    if sight.is_whole:
        return list(lines)
    owners = {job: _owner(job, read_model, store) for job in {_job(line) for line in lines} if job is not None}
    own = {job for job, owner in owners.items() if owner is not None and sight.has(owner)}
    return [line for line in lines if line.kind in OF_A_NODE or _job(line) in own]


def _job(line: AuditLine) -> int | None:
    """The job that a line tells of; None where it tells of others, too, or of none."""
    job = line.body.get("job") if line.kind in OF_A_JOB else None
    return job if isinstance(job, int) else None


def _owner(job: int, read_model: ReadModel, store: Store) -> str | None:
    """The owner of a job; None of one that is forgotten."""
    live = read_model.jobs.get(JobId(job))
    if live is not None:
        return live.spec.user
    with suppress(UnreadableError):
        owner = read_one(store, FINISHED_JOBS, job_key(JobId(job)), lambda body: body["job"]["spec"].get("user", ""))
        return None if owner is None else str(owner)
    return None
