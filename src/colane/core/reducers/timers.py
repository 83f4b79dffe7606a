"""Things the core will do by itself at a known time."""

from __future__ import annotations

from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from colane.model.job import JobId
from colane.model.plan import ON_CHANGE, Replan


class TimerKind(StrEnum):
    """What falls due."""

    TIME_LIMIT = "time-limit"
    PROTECTION_OVER = "protection-over"
    TAKEN_TO_RUN = "taken-to-run"
    CHECKPOINT_DUE = "checkpoint-due"
    HOLD_OVER = "hold-over"
    HALT_DUE = "halt-due"
    RESERVED = "reserved"


class Timer(NamedTuple):
    """One job's timer; it means nothing to a later attempt."""

    due_s: float
    serial: int
    kind: TimerKind
    job: JobId
    attempt: int


class Timers:
    """A heap of timers, equal times in order of setting; `replans`, to be read by others, has pools not `ON_CHANGE`."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._serial = 0
        self.replans: dict[str, Replan] = {}
        self._wakes: set[float] = set()
        self.look_s = inf  # when budgets are looked at again

    @property
    def next_s(self) -> float | None:
        """When the next one is due."""
        due_s = min(self._heap[0].due_s, self.look_s) if self._heap else self.look_s
        if self.replans:
            due_s = min(due_s, *[replan.at_s for replan in self.replans.values()])
        if self._wakes:
            due_s = min(due_s, *self._wakes)
        return None if due_s == inf else due_s

    def replan(self, pool: str) -> Replan:
        """When a pool is planned again."""
        return self.replans.get(pool, ON_CHANGE)

    def plan_again(self, pool: str, replan: Replan, *, keeps_earlier: bool = False) -> None:
        """A pool is planned again as this says, in place of what was said before.

        Where a part of the pool alone was looked at, what was said before stands: its time if that is earlier.
        """
        if keeps_earlier:
            known = self.replan(pool)
            after_moves = known.after_moves or replan.after_moves
            replan = replan._replace(at_s=min(known.at_s, replan.at_s), after_moves=after_moves)
        if replan != ON_CHANGE:
            self.replans[pool] = replan
        elif self.replans:
            self.replans.pop(pool, None)

    def more_happened(self, pool: str) -> None:
        """More has happened in a pool than that jobs came: the next plan looks at every job."""
        known = self.replans.get(pool)
        if known is not None and known.newcomers_only:
            self.replans[pool] = known._replace(newcomers_only=False, full_up_to=-inf)

    def anything_happened(self, pool: str) -> None:
        """More has happened in a pool than can be told: the next plan looks at all of it."""
        known = self.replans.get(pool)
        if known is not None and known.news_until_s > -inf:
            self.replans[pool] = known._replace(news_until_s=-inf)

    def pools_due(self, now_s: float) -> list[str]:
        """Pools to be planned now; each is said once."""
        due = [pool for pool, replan in self.replans.items() if replan.at_s <= now_s]
        for pool in due:
            self.replans[pool] = self.replans[pool]._replace(at_s=inf)
        return due

    def wake(self, due_s: float) -> None:
        """Let there be a step at that time, whatever else happens."""
        self._wakes.add(due_s)

    def set(self, due_s: float, kind: TimerKind, job: JobId, attempt: int) -> None:
        """Remember one."""
        self._serial += 1
        heappush(self._heap, Timer(due_s, self._serial, kind, job, attempt))

    def next_due(self, now_s: float) -> Timer | None:
        """Take out the next one that is due; times that have come are waited for no longer."""
        if self._wakes:
            self._wakes = {due_s for due_s in self._wakes if due_s > now_s}
        return heappop(self._heap) if self._heap and self._heap[0].due_s <= now_s else None
