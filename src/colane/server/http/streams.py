"""Answers too long, or too lasting, to be one text: lists in pieces, and server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from colane.server.ground.yielding import in_slices
from colane.server.store.store import AuditLine
from colane.server.writer.feed import Feed

PIECE_ITEMS: Final = 500  # items rendered at once
PING_S: Final = 15  # a comment this often keeps proxies from closing a quiet stream

GRACE_S: Final = 2  # at a shutdown the feed ends its streams by itself; they are cut off only if that takes this long


def json_list(items: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """Yield a JSON list piece by piece, so that ten thousand jobs are never one text in memory."""
    left = iter(items)
    lead = b"["
    while part := list(islice(left, PIECE_ITEMS)):
        yield lead + b",".join(json.dumps(item).encode() for item in part)
        lead = b","
    yield b"]" if lead == b"," else b"[]"


async def json_items(items: Sequence[Mapping[str, object]]) -> AsyncIterator[bytes]:
    """Yield the items of a JSON list, a few rendered at a time while others go on."""
    lead = b""
    async for part in in_slices(items):
        yield lead + ",".join(map(_COMPACT.encode, part)).encode()
        lead = b","


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
Choose = Callable[[list[AuditLine]], Awaitable[list[AuditLine]]]


async def sse_lines(
    feed: Feed, after: int, choose: Choose, is_known: Callable[[], bool], until: int | None = None
) -> AsyncIterator[bytes]:
    """Yield server-sent events, all that there are at a time, of the lines that are chosen for the listener.

    They end when its token is revoked: that is an event itself, so it is noticed at once; and with the line `until`,
    whether or not that one is chosen.
    """
    if until is not None and until <= after:
        return
    async for lines in feed.batches(after):
        if not is_known():
            return
        chosen = await choose(lines)
        if chosen:
            yield b"".join([feed.text(line) for line in chosen if until is None or line.number <= until])
        if until is not None and lines[-1].number >= until:
            return
