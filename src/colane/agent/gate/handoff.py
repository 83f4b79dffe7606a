"""What it costs to pass a turn on, lane by lane: from when one job has left the device idle until the next one goes on.

Both times are the jobs' own (`adaptor.turns`), so sockets, this agent and the kernel's waking are all in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from colane.agent.gate.values import Lane, TurnTimes

RECENT = 32
"""So many handoffs of a lane are remembered."""
LONGEST_S = 1.0
"""What takes longer is no cost of passing on: a job was stopped, or its clock is another."""


class _Left(NamedTuple):
    job: int
    lanes: tuple[Lane, ...]
    at_s: float


@dataclass(slots=True)
class Handoffs:
    """The latest handoffs of each lane."""

    _recent: dict[Lane, deque[float]] = field(default_factory=dict)
    _mean_s: dict[Lane, float] = field(default_factory=dict)
    _since_s: dict[int, float] = field(default_factory=dict)
    _left: _Left | None = None

    def yielded(self, job: int, lanes: tuple[Lane, ...], times: TurnTimes) -> None:
        """A job has given its lanes up; when it got them is known now, too."""
        since_s = self._since_s.pop(job, None)
        took_s = None if since_s is None else times.resumed_s - since_s
        if took_s is not None and 0.0 <= took_s < LONGEST_S:
            for lane in lanes:
                recent = self._recent.setdefault(lane, deque(maxlen=RECENT))
                recent.append(took_s)
                self._mean_s[lane] = fmean(recent)
        self._left = _Left(job, lanes, times.yielded_s) if times.yielded_s else None

    def granted(self, job: int, lanes: tuple[Lane, ...]) -> None:
        """A job is let go: by a handoff if another has just left its lane."""
        left = self._left
        if left is not None and left.job != job and not set(lanes).isdisjoint(left.lanes):
            self._since_s[job] = left.at_s

    def settled(self) -> None:
        """A job that is let go from now on comes to a lane that was idle."""
        self._left = None

    def forget(self, jobs: Iterable[int], lanes: Iterable[Lane]) -> None:
        """Keep what is known of these jobs and lanes alone."""
        kept_jobs, kept_lanes = set(jobs), set(lanes)
        self._since_s = {job: at_s for job, at_s in self._since_s.items() if job in kept_jobs}
        for lane in [lane for lane in self._recent if lane not in kept_lanes]:
            del self._recent[lane], self._mean_s[lane]

    def mean_s(self, lanes: Iterable[Lane]) -> float | None:
        """Mean of the latest, in the lane of these where it is longest; None before there was any."""
        known = [self._mean_s[lane] for lane in lanes if lane in self._mean_s]
        return max(known, default=None)
