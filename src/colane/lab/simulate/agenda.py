"""What will happen when: a heap keyed by (time, serial), so that equal times keep the order they were entered in."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any

Entry = tuple[float, int, Callable[..., None], Any, Any]


class Agenda:
    """Future happenings. One that has become meaningless is left in and ignored by its handler."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._serial = 0

    @property
    def next_s(self) -> float:
        """When the first is due; infinite when there is none."""
        return self._heap[0][0] if self._heap else inf

    def at(self, at_s: float, handler: Callable[..., None], who: object, what: object = None) -> int:
        """Enter one; its serial is returned, from 1."""
        self._serial += 1
        heappush(self._heap, (at_s, self._serial, handler, who, what))
        return self._serial

    def run_due(self, now_s: float) -> None:
        """Take out and handle all that is due, in order; what handlers enter for now is handled too."""
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            _, serial, handler, who, what = heappop(heap)
            handler(who, serial if what is None else what)
