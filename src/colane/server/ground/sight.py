"""Which jobs a caller is told of: all, or, where the scheduler is started so, its own alone.

A job that a caller is not told of does not exist for that caller. What remains to be seen: docs/how-to/security.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.model.choices import See
from colane.server.ground.access import Caller, Role
from colane.server.ground.problems import RefusedError


@dataclass(frozen=True, slots=True)
class Sight:
    """What one caller may be told."""

    caller: Caller  # the caller
    see: See = See.ALL  # which jobs users are told of

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
        """Refuse a job as one that is not there. Raises RefusedError: 404."""
        if not self.has(user):
            raise no_job(job, kind)

    def demand_owner(self, job: int, user: str, deed: str) -> None:
        """Refuse a caller that does not own a job. Raises RefusedError: 404, the caller may not see it; 403."""
        self.demand_sight(job, user, "live job")
        self.caller.demand_owner(job, user, deed)

    def demand_whole(self, what: str) -> None:
        """Refuse what tells of all users' jobs at once. Raises RefusedError: 403."""
        if not self.is_whole:
            raise RefusedError.because(
                403, f"{what} tell of all users' jobs, and users are told of their own here; you are {self.caller}"
            )


def no_job(job: int, kind: str = "job") -> RefusedError:
    """Return what is said of a job that is not there."""
    return RefusedError.because(404, f"there is no {kind} {job}")
