"""What outlives an agent on a simulated machine: its disk, and the attempts on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from colane.agent.files.heard import KnownHistory
from colane.agent.files.lease import Lease
from colane.agent.reconcile import AttemptPhase, DesiredJob, Key
from tests.faults.simulated.network import Object


@dataclass
class VirtualAttempt:
    """One start of one job on one machine, on its disk and, while it lives, as a process.

    Attributes:
        desired: As the scheduler wanted it last.
        work_s: How long it runs before it ends by itself.
        code: With this exit code.
        spawned: Its supervisor is on its way.
        alive: Its process is there.
        done_s: How long it has run.
        start_s: By its machine's wall clock.
        stop_at_s: When its process will have ended, since it was asked to.
        halts_at_s: When it will be halted because its lease ran out, by its machine's clock of leases.
        is_halted: It is; nothing of it goes on.
        order: By which order of the scheduler it is to stand; 0 is none.
        stands_by: By which it does.
        record: How it ended.
        is_parked: It waits at a step boundary.
        asked: The number of the latest asking to save that it was told of.
        refuses: The number of the one it could not answer.
        saves_at_s: When it will have saved, and leaves.
    """

    desired: DesiredJob
    work_s: float
    code: int
    spawned: bool = False
    claimed: bool = False
    alive: bool = False
    done_s: float = 0.0
    start_s: float = 0.0
    stop_at_s: float = math.inf
    halts_at_s: float = math.inf
    is_halted: bool = False
    order: int = 0
    stands_by: int = 0
    record: Object | None = None
    is_parked: bool = False
    asked: int = 0
    refuses: int = 0
    saves_at_s: float = math.inf

    @property
    def runs(self) -> bool:
        """Whether anything of it may compute or write."""
        return self.alive and not self.is_halted

    @property
    def phase(self) -> AttemptPhase:
        """As the real agent judges it by what is on disk."""
        if self.record is not None:
            return AttemptPhase.ENDED
        if self.claimed:
            return AttemptPhase.RUNNING if self.alive else AttemptPhase.LOST
        return AttemptPhase.STARTING if self.spawned else AttemptPhase.PREPARED


class JobHere(NamedTuple):
    """See `JobDir`."""

    key: Key
    attempt: VirtualAttempt

    def has_ended(self) -> bool:
        """See `JobDir.has_ended`."""
        return self.attempt.record is not None

    def halt(self, *, told: bool) -> bool:
        """See `JobDir.halt`."""
        if told != bool(self.attempt.order):
            self.attempt.order = self.attempt.stands_by + 1 if told else 0
        return True

    def stands(self) -> bool:
        """See `JobDir.stands`."""
        return 0 < self.attempt.order == self.attempt.stands_by


class NoJob:
    """The folder of a job that is not here."""

    def halt(self, *, told: bool) -> bool:
        """See `JobDir.halt`."""
        del told
        return True


@dataclass
class VirtualDisk:
    """What `StateDir` is to the real agent."""

    agent_id: str
    root: Path
    cluster_id: str = ""
    joins: int = 0
    heard: KnownHistory = field(default_factory=KnownHistory)
    attempts: dict[Key, VirtualAttempt] = field(default_factory=dict)
    delivered: set[Key] = field(default_factory=set)
    lease: Lease = field(init=False)

    def live(self) -> list[JobHere]:
        """See `StateDir.live`."""
        return [JobHere(key, attempt) for key, attempt in self.attempts.items()]

    def job_dir(self, key: Key) -> JobHere | NoJob:
        """See `StateDir.job_dir`."""
        return JobHere(key, self.attempts[key]) if key in self.attempts else NoJob()

    def join(self, cluster_id: str) -> None:
        """See `StateDir.join`."""
        self.cluster_id, self.heard = cluster_id, KnownHistory()
        self.joins += 1
        self.delivered.clear()

    def note(self, told: KnownHistory) -> None:
        """See `StateDir.note`."""
        self.heard = self.heard.with_news(told)
