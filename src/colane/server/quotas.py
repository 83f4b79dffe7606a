"""How much a user may have at once: read from a file, demanded when he submits, kept by holding his jobs back.

A job of a user with a limit on what runs enters the queue held. It is let go as soon as all of his that are let go,
waiting or running, are within his limits together: so the policy never sees more than he may have.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from colane.core.events import Event, ResumeRequested, SuspendRequested
from colane.model.job import Job, JobId, JobSpec, JobState, SuspendVia
from colane.server import changes
from colane.server.admission import Admitted
from colane.server.board import Board
from colane.server.problems import RefusedError, near_matches
from colane.server.turn import Turn

TOO_MANY: Final = 429
MINUTE_S: Final = 60.0
LIMIT_MAX: Final = 2**31
DEFAULT, USER = "default", "user"


class LimitsError(Exception):
    """A file of limits says what cannot be; the message is one line that names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one user; None does not bound him.

    Attributes:
        gpus: GPUs of his jobs that run, each counted as large as it may become.
        running: His jobs that run.
        queued: His jobs that wait.
        submits_per_minute: Jobs he submits within any minute.
    """

    gpus: int | None = None
    running: int | None = None
    queued: int | None = None
    submits_per_minute: int | None = None

    @property
    def holds(self) -> bool:
        """Whether his jobs may have to be held back."""
        return self.gpus is not None or self.running is not None


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of all users.

    Attributes:
        default: Of each user without limits of his own.
        users: Of these users, in the place of the default.
    """

    default: Limits = field(default_factory=Limits)
    users: Mapping[str, Limits] = field(default_factory=dict)

    def of(self, user: str) -> Limits:
        """Return a user's limits."""
        return self.users.get(user, self.default)

    @property
    def are_any(self) -> bool:
        """Whether anybody may be bounded."""
        return any(limits != Limits() for limits in (self.default, *self.users.values()))


def read_quotas(path: Path) -> Quotas:
    """Read a file of limits (TOML): a table `default`, and a table `user.NAME` for each user with his own.

    Raises:
        LimitsError: It cannot be read, or says what cannot be.
    """
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LimitsError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise LimitsError(f"{path}: {error}") from error
    unknown = body.keys() - {DEFAULT, USER}
    if unknown:
        raise LimitsError(f"{path}: there is no table {min(unknown)!r}; there are [default] and [user.NAME]")
    users = body.get(USER, {})
    if not isinstance(users, dict):
        raise LimitsError(f"{path}: {USER}: must be tables [user.NAME]")
    own = {name: _limits(f"{path}: {USER}.{name}", table) for name, table in users.items()}
    return Quotas(_limits(f"{path}: {DEFAULT}", body.get(DEFAULT, {})), own)


def _limits(place: str, table: Any) -> Limits:  # noqa: ANN401 - whatever the file holds
    known = [each.name for each in fields(Limits)]
    if not isinstance(table, dict):
        raise LimitsError(f"{place}: must be a table of {', '.join(known)}")
    for name, value in table.items():
        if name not in known:
            raise LimitsError(f"{place}.{name}: {near_matches(name, known)}there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
            raise LimitsError(f"{place}.{name}: must be a whole number from 0 up, got {value!r}")
    return Limits(**table)


class QuotaKeeper:
    """Sees to it that nobody has more than he may."""

    def __init__(self, quotas: Quotas | None = None) -> None:
        self._quotas = quotas or Quotas()
        self._submitted: dict[str, deque[float]] = defaultdict(deque)
        self._has_to_look = True

    def submit(self, turn: Turn, jobs: Sequence[Admitted]) -> list[JobId]:
        """Append jobs to the queue's end, held where their users have limits on what runs, and return their ids.

        Raises:
            RefusedError: 422 and 429, they would be too many, or could never be let go; none is taken.
        """
        by_user: dict[str, list[JobSpec]] = defaultdict(list)
        for job in jobs:
            by_user[job.spec.user].append(job.spec)
        for user, asked in by_user.items():
            self._demand_room(user, asked, turn)
        for user, asked in by_user.items():
            if self._quotas.of(user).submits_per_minute is not None:
                self._submitted[user].extend([turn.now_s] * len(asked))
        ids = changes.submit(turn, jobs)
        for job_id, job in zip(ids, jobs, strict=True):
            self._hold(turn, job_id, job.spec.user)
        return ids

    def resume(self, turn: Turn, job_id: JobId, by: str) -> None:
        """Let a suspended job go on; a waiting one waits for its user's limits, as when it was submitted.

        Raises:
            RefusedError: 404, there is no such live job; 409, a limit holds it.
        """
        job = turn.board.jobs.get(job_id)
        if job is not None and is_held(job):
            text = f"job {job_id} waits for {job.suspended_by}: it starts when others of {job.spec.user} have ended"
            raise RefusedError.because(409, text)
        changes.resume(turn, job_id, by)
        if job is not None and job.state is JobState.QUEUED and job.suspended:
            self._hold(turn, job_id, job.spec.user)

    def _hold(self, turn: Turn, job_id: JobId, user: str) -> None:
        limits = self._quotas.of(user)
        if limits.holds:
            turn.events.append(SuspendRequested(job_id, _named(user, limits), SuspendVia.LIMIT))

    def _demand_room(self, user: str, asked: Sequence[JobSpec], turn: Turn) -> None:
        limits, most = self._quotas.of(user), max(spec.gpus for spec in asked)
        if limits.gpus is not None and most > limits.gpus:
            raise RefusedError.because(422, f"must be at most {limits.gpus}, the limit of {user}, got {most}", "gpus")
        if limits.running == 0:
            raise RefusedError.because(422, f"{user} may run no jobs", "user")
        if limits.queued is not None:
            waiting = sum(job.state is JobState.QUEUED and job.spec.user == user for job in turn.board.jobs.values())
            waiting += sum(job.spec.user == user for job in turn.admitted.values())
            if waiting + len(asked) > limits.queued:
                text = f"{user} may have {limits.queued} jobs waiting, and has {waiting}"
                raise RefusedError.because(TOO_MANY, f"{text}; submit {len(asked)} more when some have started")
        self._demand_pace(user, limits.submits_per_minute, len(asked), turn.now_s)

    def _demand_pace(self, user: str, most: int | None, asked: int, now_s: float) -> None:
        if most is None:
            return
        recent = self._submitted[user]
        while recent and recent[0] <= now_s - MINUTE_S:
            recent.popleft()
        if len(recent) + asked > most:
            text = f"{user} may submit {most} jobs a minute, and has submitted {len(recent)}"
            raise RefusedError.because(TOO_MANY, f"{text}; wait, or send fewer at once")

    def releases(self, board: Board) -> Iterator[Event]:
        """Yield what lets held jobs go, higher priorities first, as far as their users' limits allow."""
        if not self._has_to_look:
            return
        held = [job for job in board.jobs.values() if is_held(job)]
        self._has_to_look = bool(held) or self._quotas.are_any
        if not held:
            return
        had = self._had(board)
        for job in sorted(held, key=lambda job: (-job.spec.priority, job.id)):
            user, (jobs, gpus) = job.spec.user, had[job.spec.user]
            limits = self._quotas.of(user)
            fits = _within(jobs + 1, limits.running) and _within(gpus + job.spec.gpus, limits.gpus)
            # Whoever comes behind one that does not fit waits for it: else small ones would go for ever before it.
            had[user] = (jobs + 1, gpus + job.spec.gpus)
            if fits:
                yield ResumeRequested(job.id, _named(user, limits))

    @staticmethod
    def _had(board: Board) -> dict[str, tuple[int, int]]:
        """Jobs and GPUs that each user has been let have."""
        had: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for job in board.jobs.values():
            if not is_held(job):
                jobs, gpus = had[job.spec.user]
                had[job.spec.user] = (jobs + 1, gpus + job.spec.gpus)
        return had


def is_held(job: Job) -> bool:
    """Whether a limit keeps a job from starting."""
    return job.state is JobState.QUEUED and job.suspended and job.suspended_via is SuspendVia.LIMIT


def _within(count: int, most: int | None) -> bool:
    return most is None or count <= most


def _named(user: str, limits: Limits) -> str:
    parts = [f"{limits.gpus} GPUs" if limits.gpus is not None else ""]
    parts += [f"{limits.running} running jobs" if limits.running is not None else ""]
    return f"{user}'s limit of {' and '.join(filter(None, parts)) or 'nothing'}"
