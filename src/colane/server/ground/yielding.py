"""Long lists are gone through a few items at a time, and the event loop serves all else in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")

ITEMS_AT_ONCE: Final = 64  # of jobs that are read or judged: some 5 ms of them


async def in_slices(items: Sequence[Item], at_once: int = ITEMS_AT_ONCE) -> AsyncIterator[Sequence[Item]]:
    """Yield items in order, so many at once; between two slices others go on."""
    for begin in range(0, len(items), at_once):
        if begin:
            await asyncio.sleep(0)
        yield items[begin : begin + at_once]
