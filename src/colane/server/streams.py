"""Answers too long, or too lasting, to be one text: lists in pieces, and server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Final

from colane.server.documents import Body
from colane.server.feed import Feed

PIECE_ITEMS: Final = 500
"""Items rendered at once."""


def json_list(items: Iterable[Body]) -> Iterator[bytes]:
    """Yield a JSON list piece by piece, so that ten thousand jobs are never one text in memory."""
    left = iter(items)
    lead = b"["
    while part := list(islice(left, PIECE_ITEMS)):
        yield lead + b",".join(json.dumps(item).encode() for item in part)
        lead = b","
    yield b"]" if lead == b"," else b"[]"


async def sse_lines(feed: Feed, after: int) -> AsyncIterator[bytes]:
    """Yield server-sent events, all that there are at a time."""
    async for lines in feed.batches(after):
        yield b"".join([feed.text(line) for line in lines])
