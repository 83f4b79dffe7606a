"""Things the core will do by itself at a known time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

from colane.model.job import JobId


class TimerKind(StrEnum):
    """What falls due."""

    TIME_LIMIT = "time-limit"
    PROTECTION_OVER = "protection-over"
    TAKEN_TO_RUN = "taken-to-run"


class Timer(NamedTuple):
    """One job's timer; it means nothing to a later attempt."""

    due_s: float
    serial: int
    kind: TimerKind
    job: JobId
    attempt: int


class Timers:
    """A heap of timers, equal times in order of setting."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._serial = 0

    @property
    def next_s(self) -> float | None:
        """When the next one is due."""
        return self._heap[0].due_s if self._heap else None

    def set(self, due_s: float, kind: TimerKind, job: JobId, attempt: int) -> None:
        """Remember one."""
        self._serial += 1
        heappush(self._heap, Timer(due_s, self._serial, kind, job, attempt))

    def due(self, now_s: float) -> Iterator[Timer]:
        """Take out all that are due."""
        while self._heap and self._heap[0].due_s <= now_s:
            yield heappop(self._heap)
