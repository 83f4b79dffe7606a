"""Callers and their rights: users, operators and agents, known by the kernel on a unix socket or by a token.

All callers see jobs and nodes. A user touches (submits, cancels, suspends, reads logs and environments of) own jobs,
an operator all; an agent speaks for the node its token is for, and takes the environments of the jobs placed there.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from colane.facts.may import Asker
from colane.server.ground.problems import RefusedError

FORBIDDEN: Final = 403


class Role(StrEnum):
    """What a caller may do."""

    USER = "user"
    OPERATOR = "operator"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str  # the user's name; of an agent, its node's
    role: Role  # what the caller may do
    job: int | None = None  # the job of the user's that calls, by a token of its own; None for the user

    @property
    def may_all(self) -> bool:
        """Whether every route is open to it."""
        return self.role is Role.OPERATOR

    def owns(self, user: str) -> bool:
        """Whether it may touch what belongs to a user."""
        return self.may_all or (self.role is Role.USER and self.name == user)

    def demand_operator(self, deed: str) -> None:
        """Refuse all but operators. Raises RefusedError: 403."""
        if not self.may_all:
            raise RefusedError.because(FORBIDDEN, f"only an operator may {deed}; you are {self}")

    def asks_of(self, user: str) -> Asker:
        """What the caller is to a user's jobs."""
        return Asker(self.owns(user), self.role is not Role.AGENT and self.name == user)

    def demand_owner(self, job: int, user: str, deed: str) -> None:
        """Refuse a caller that does not own a job. Raises RefusedError: 403."""
        if not self.owns(user):
            owner = user or "no user"
            raise RefusedError.because(
                FORBIDDEN, f"job {job} belongs to {owner}: only its owner or an operator may {deed} it; you are {self}"
            )

    def demand_own(self, job: int, user: str, deed: str) -> None:
        """Refuse all but the user a job belongs to. Raises RefusedError: 403."""
        if self.role is Role.AGENT or self.name != user:
            owner = user or "no user"
            text = f"job {job} belongs to {owner}: only its owner may {deed}; you are {self}"
            raise RefusedError.because(FORBIDDEN, text)

    def demand_node(self, name: str) -> None:
        """Refuse a caller that does not speak for a node. Raises RefusedError: 403."""
        if not (self.may_all or (self.role is Role.AGENT and self.name == name)):
            fix = "an agent needs a token made for its node (colane token make --node NAME)"
            raise RefusedError.because(FORBIDDEN, f"{self} does not speak for node {name!r}; {fix}")

    def submits_as(self, asked: str) -> str:
        """Return the owner of a job that the caller submits for a user, "" for none in particular.

        Raises RefusedError: 403.
        """
        if self.role is Role.AGENT:
            raise RefusedError.because(FORBIDDEN, f"{self} may not submit jobs: use a user's token")
        if asked and not self.owns(asked):
            raise RefusedError.because(
                FORBIDDEN, f"must be {self.name!r} or left out: only an operator submits for others", "user"
            )
        return asked or self.name

    def __str__(self) -> str:
        """Return the caller as a message names it."""
        of_job = "" if self.job is None else f"job {self.job} of "
        return f"{of_job}{_NAMED[self.role]} {self.name}"


_NAMED: Final = {Role.USER: "user", Role.OPERATOR: "operator", Role.AGENT: "the agent of node"}


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as the store keeps it; the token itself is with its holder alone."""

    digest: str  # SHA-256 of it, in hex. It is random and as long as a key, so that needs no salt
    caller: Caller  # the caller it stands for
    made_s: float  # when it was made
    made_by: str  # the user that made it

    @property
    def id(self) -> str:
        """What it is called where it is listed and revoked."""
        return self.digest[:ID_DIGITS]


ID_DIGITS: Final = 12


def digest_of(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def user_name(uid: int) -> str:
    """Return the name of a user of this machine, or its number where it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Knows the caller behind a connection or a token."""

    token: str = field(repr=False)  # the operator's own, which the scheduler was started with
    tokens: Callable[[], Mapping[str, TokenRecord]] = dict  # gives all others by digest, as they are now
    # gives the job that holds a token, None where none does
    job_caller: Callable[[str], Caller | None] = field(default=lambda _token: None)
    uid: int = field(default_factory=os.geteuid)  # the user that runs the scheduler: it, and root, are operators
    _owner: Caller = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Look up once which user that is: every request of an agent may ask."""
        object.__setattr__(self, "_owner", Caller(user_name(self.uid), Role.OPERATOR))

    def by_uid(self, uid: int) -> Caller:
        """Return the caller that a process of this machine is."""
        role = Role.OPERATOR if uid in {0, self.uid} else Role.USER
        return Caller(user_name(uid), role)

    def by_token(self, token: str) -> Caller | None:
        """Return the holder of a token, None where it is unknown."""
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return self._owner
        known = self.tokens().get(digest_of(token))
        return self.job_caller(token) if known is None else known.caller
