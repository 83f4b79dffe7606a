"""Which jobs hold devices and use none: no step was made and no kernel ran, on any of their nodes.

What is not known is taken for use: a driver that does not tell processes apart makes no job idle, and after a time
without reports it is counted anew. One that waits for its turn in a lane, or at a barrier for a rank that works, uses
what it has.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

IDLE_RATIO_MAX: Final = 0.005
"""Drivers tell of whole percents; on cpu devices an interpreter that waits needs less than this of a core."""

GAP_MAX_S: Final = 60.0  # of a longer time without a report nothing is known

IN_TURNS: Final = frozenset({"waiting", "kept", "paused"})  # how a job stands in its lane while it may not step


class JobSeen(NamedTuple):
    """What a report tells of a job."""

    attempt: int  # of which attempt
    steps: int  # steps made so far; 0 of one that tells of none
    busy_ratio: float | None  # part of the time in which its kernels ran; None is unknown
    turn: str = ""  # how it stands in its lane


class _Stood(NamedTuple):
    seen: JobSeen
    at_s: float
    used_s: float


class IdleWatch:
    """Since when each job has used nothing.

    Attributes:
        resting: Jobs of which the last word of a node was that they used nothing there: only these can be idle.
    """

    def __init__(self) -> None:
        self._stood: dict[int, dict[str, _Stood]] = {}
        self.resting: set[int] = set()

    def take(self, node: str, job: int, now_s: float, seen: JobSeen) -> None:
        """Take what a node's agent tells of a job."""
        by_node = self._stood.setdefault(job, {})
        before = by_node.get(node)
        is_used = (
            before is None
            or before.seen.attempt != seen.attempt
            or before.seen.steps != seen.steps
            or seen.busy_ratio is None
            or seen.busy_ratio > IDLE_RATIO_MAX
            or seen.turn in IN_TURNS
            or not before.at_s <= now_s <= before.at_s + GAP_MAX_S
        )
        (self.resting.discard if is_used else self.resting.add)(job)
        by_node[node] = _Stood(seen, now_s, now_s if is_used or before is None else before.used_s)

    def since_s(self, job: int, nodes: Container[str], now_s: float) -> float | None:
        """Since when a job on these nodes has used nothing; None where one of them has not told of it for a while."""
        stood = [one for node, one in self._stood.get(job, {}).items() if node in nodes]
        if not stood or any(now_s > one.at_s + GAP_MAX_S for one in stood):
            return None
        return max(one.used_s for one in stood)

    def keep(self, live: Container[int]) -> None:
        """Forget all other jobs."""
        for job in [job for job in self._stood if job not in live]:
            del self._stood[job]
            self.resting.discard(job)
