"""What it costs to pass a turn on, lane by lane: from when one job has left the device idle until the next one goes on.

Both times are the jobs' own (`adaptor.turns`), so sockets, this agent and the kernel's waking are all in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from colane.agent.gate.values import Lane, TurnTimes
from colane.lanes.turns import Contender, LaneRequest, grant, precedence
from colane.model.placement import TurnRule

# -- Which job goes on once a holder parks, chosen while it still runs: it can be let go before anything is counted.


class Successor(NamedTuple):
    """The job that has the lanes of another as soon as it gives them up."""

    job: int  # its id
    key: tuple[float, ...]  # its place in the order of the rule, which does not change while it waits
    flag: bool = False  # whether it asks at its first boundary


def choose(rule: TurnRule, ready: Sequence[LaneRequest], others: Sequence[LaneRequest]) -> Successor | None:
    """Say which one job is let go when a holder parks, if the holder itself comes later in the order (`comes_before`).

    None where one that comes first waits for another holder: by then it may be the one to replace that.

    Args:
        rule: The turn rule.
        ready: Jobs that are parked at a boundary and may run.
        others: The other jobs that run, or may be running.
    """
    granted = grant(rule, ready, others) if ready else []
    if len(granted) != 1:
        return None
    found = next(claim for claim in ready if claim.member.id == granted[0])
    key = precedence(rule, found.member)
    is_first = all(precedence(rule, one.member) >= key for one in ready if one.lanes & found.lanes)
    return Successor(found.member.id, key) if is_first else None


def comes_before(rule: TurnRule, successor: Successor, leaver: Contender) -> bool:
    """Whether a holder that parks, and wants to go on, goes after its successor: then `grant` says the same.

    Not under `srtf`, where what remains is known only once the turn has been measured.
    """
    return rule is not TurnRule.SRTF and successor.key < precedence(rule, leaver)


RECENT = 32  # so many handoffs of a lane are remembered
LONGEST_S = 1.0  # what takes longer is no cost of passing on: a job was stopped, or its clock is another


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
