"""A store that lacks what agents have heard of: a replica that lagged has taken over, or a copy was put back.

On a store over the network a scheduler begins by hearing its agents. Where one knows of more than the store, nothing is
changed and no agent is told what to run until an operator adopts the store as it is: what was lost is not known here,
and a job that waits by these records may be running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HEAR_MAX_S: Final = 5.0
"""So long a scheduler that begins waits for agents that say nothing; they may be gone with their machines."""
JOBS_TOLD_MAX: Final = 20
WAITS: Final = "the scheduler has just begun, and hears its agents first"


class Ahead(NamedTuple):
    """A node that has heard of more than the store knows."""

    node: str  # its name
    changes: int  # how many transactions it has heard of that the store lacks; of an older agent how many events
    jobs: tuple[int, ...]  # those that it runs; they are ended there once the store is adopted


@dataclass(slots=True)
class BehindWatch:
    """Whether the store is known to be behind."""

    clock: Callable[[], float]  # seconds that only go forward
    awaited: set[str] = field(default_factory=set)  # nodes that were not heard yet, of a scheduler that begins
    ahead: dict[str, Ahead] = field(default_factory=dict)  # by node
    is_adopted: bool = False  # an operator goes on from what is there
    _until_s: float = 0.0

    def begin(self, nodes: Iterable[str]) -> None:
        """Wait for these."""
        self.awaited, self._until_s = set(nodes), self.clock() + HEAR_MAX_S
        self.ahead, self.is_adopted = {}, False

    @property
    def is_hearing(self) -> bool:
        """Whether it is not known yet how much the agents know."""
        if self.awaited and self.clock() >= self._until_s:
            self.awaited.clear()
        return bool(self.awaited)

    @property
    def lost(self) -> int:
        """How many changes the store lacks, as far as is known."""
        return 0 if self.is_adopted else max((one.changes for one in self.ahead.values()), default=0)

    @property
    def problem(self) -> str:
        """Why nothing is changed; empty where all goes on."""
        if not self.lost:
            return WAITS if self.is_hearing else ""
        most = max(self.ahead.values(), key=lambda one: one.changes)
        jobs = sorted({job for one in self.ahead.values() for job in one.jobs})
        shown = f"; jobs {', '.join(map(str, jobs[:JOBS_TOLD_MAX]))} run there" if jobs else ""
        return (
            f"the store lacks {most.changes} changes that node {most.node} has heard of, so nothing is changed (a "
            f"replica that lagged has taken over, or a copy was put back); {len(self.ahead)} of the nodes "
            f"know more{shown}. "
            f"Bring the newer store back and start again; or go on without: colane store adopt --lost {most.changes}"
        )
