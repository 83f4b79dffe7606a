"""Things the core will do by itself at a known time."""

from __future__ import annotations

from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from colane.model.job import JobId


class TimerKind(StrEnum):
    """What falls due."""

    TIME_LIMIT = "time-limit"
    PROTECTION_OVER = "protection-over"
    TAKEN_TO_RUN = "taken-to-run"
    CHECKPOINT_DUE = "checkpoint-due"
    HOLD_OVER = "hold-over"


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
        self._asks: dict[str, float] = {}
        self._wakes: set[float] = set()

    @property
    def next_s(self) -> float | None:
        """When the next one is due."""
        due_s = self._heap[0].due_s if self._heap else inf
        if self._asks:
            due_s = min(due_s, *self._asks.values())
        if self._wakes:
            due_s = min(due_s, *self._wakes)
        return None if due_s == inf else due_s

    def ask_again(self, pool: str, due_s: float | None, *, keeps_earlier: bool = False) -> None:
        """The policy wants to be asked about a pool then, in place of what it wanted before; None never.

        Where it has looked at a part of the pool alone, what it wanted before stands if that is earlier.
        """
        if due_s is not None:
            self._asks[pool] = min(due_s, self._asks.get(pool, inf)) if keeps_earlier else due_s
        elif self._asks and not keeps_earlier:
            self._asks.pop(pool, None)

    def is_watched(self, pool: str) -> bool:
        """Whether the policy wants to be asked again about a pool."""
        return pool in self._asks

    def pools_due(self, now_s: float) -> list[str]:
        """Take out the pools to ask about now."""
        due = [pool for pool, due_s in self._asks.items() if due_s <= now_s] if self._asks else []
        for pool in due:
            del self._asks[pool]
        return due

    def wake(self, due_s: float) -> None:
        """Let there be a step at that time, whatever else happens."""
        self._wakes.add(due_s)

    def woken(self, now_s: float) -> None:
        """Times that have come are waited for no longer."""
        self._wakes = {due_s for due_s in self._wakes if due_s > now_s}

    def set(self, due_s: float, kind: TimerKind, job: JobId, attempt: int) -> None:
        """Remember one."""
        self._serial += 1
        heappush(self._heap, Timer(due_s, self._serial, kind, job, attempt))

    def next_due(self, now_s: float) -> Timer | None:
        """Take out the next one that is due."""
        return heappop(self._heap) if self._heap and self._heap[0].due_s <= now_s else None
