"""Which jobs a caller is told of: all, or, where the scheduler is started so, its own alone.

A job that a caller is not told of does not exist for that caller. What remains to be seen: docs/how-to/security.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from colane.model.job import JobId
from colane.model.see import See
from colane.server.http.access import Caller, Role
from colane.server.http.problems import RefusedError
from colane.server.store.store import FINISHED_JOBS, AuditLine, Store, UnreadableError, job_key
from colane.server.store.unreadable import read_one
from colane.server.writer.board import ReadModel

OF_A_JOB: Final = frozenset({"job", "decision", "attempt-ended"})
"""Kinds of audit lines that tell of one job."""
OF_A_NODE: Final = frozenset({
    "node-registered", "node-lost", "node-returned", "node-removed", "node-drained", "node-undrained", "node-notice",
    "node-set-apart",
})  # fmt: skip
"""Kinds that tell of no job at all; all others may name any user's."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one caller may be told.

    Attributes:
        caller: The caller.
        see: Which jobs users are told of.
    """

    caller: Caller
    see: See = See.ALL

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden from the caller."""
        return self.see is See.ALL or self.caller.may_all

    def has(self, user: str) -> bool:
        """Whether it is told of a user's jobs."""
        return self.is_whole or self.caller.owns(user)

    def has_node(self, name: str) -> bool:
        """Whether it is told of all jobs of a node: its agent starts them."""
        return self.is_whole or (self.caller.role is Role.AGENT and self.caller.name == name)

    def demand_sight(self, job: int, user: str, kind: str = "job") -> None:
        """Refuse a job as one that is not there.

        Raises:
            RefusedError: 404.
        """
        if not self.has(user):
            raise no_job(job, kind)

    def demand_owner(self, job: int, user: str, deed: str) -> None:
        """Refuse a caller that does not own a job.

        Raises:
            RefusedError: 404, the caller may not see it; 403.
        """
        self.demand_sight(job, user, "live job")
        self.caller.demand_owner(job, user, deed)

    def demand_whole(self, what: str) -> None:
        """Refuse what tells of all users' jobs at once.

        Raises:
            RefusedError: 403.
        """
        if not self.is_whole:
            raise RefusedError.because(
                403, f"{what} tell of all users' jobs, and users are told of their own here; you are {self.caller}"
            )


def no_job(job: int, kind: str = "job") -> RefusedError:
    """Return what is said of a job that is not there."""
    return RefusedError.because(404, f"there is no {kind} {job}")


def lines_for(sight: Sight, lines: Sequence[AuditLine], read_model: ReadModel, store: Store) -> list[AuditLine]:
    """Return those lines of a feed that the caller may see; reads the store for jobs that have ended.

    Raises:
        StoreError: The store cannot be read.
    """
    if sight.is_whole:
        return list(lines)
    owners = {job: _owner(job, read_model, store) for job in {_job(line) for line in lines} if job is not None}
    own = {job for job, owner in owners.items() if owner is not None and sight.has(owner)}
    return [line for line in lines if line.kind in OF_A_NODE or _job(line) in own]


def _job(line: AuditLine) -> int | None:
    """The job that a line tells of; None where it tells of others, too, or of none."""
    job = line.body.get("job") if line.kind in OF_A_JOB else None
    return job if isinstance(job, int) else None


def _owner(job: int, read_model: ReadModel, store: Store) -> str | None:
    """The owner of a job; None of one that is forgotten."""
    live = read_model.jobs.get(JobId(job))
    if live is not None:
        return live.spec.user
    with suppress(UnreadableError):
        owner = read_one(store, FINISHED_JOBS, job_key(JobId(job)), lambda body: body["job"]["spec"].get("user", ""))
        return None if owner is None else str(owner)
    return None
