"""How much users and groups may have at once: demanded when a job is submitted, kept by holding jobs back.

A job under a limit on what runs enters the queue held. It is let go as soon as all that are let go, waiting or running,
are together within the limits of its user and of each of his groups: so the policy never sees more than they may have.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Final

from colane.core.events import Event, ResumeRequested, SuspendRequested
from colane.model.hold import HoldKind
from colane.model.job import Job, JobId, JobSpec, JobState, SuspendVia
from colane.model.words import count
from colane.server import changes
from colane.server.admission import Admitted
from colane.server.board import Board
from colane.server.limits import Bound, Quotas
from colane.server.problems import RefusedError
from colane.server.turn import Turn

TOO_MANY: Final = 429
MINUTE_S: Final = 60.0


class QuotaKeeper:
    """Sees to it that nobody has more than he may."""

    def __init__(self, quotas: Quotas | None = None) -> None:
        self._quotas = quotas or Quotas()
        self._submitted: dict[str, deque[float]] = defaultdict(deque)
        self._has_to_look = True

    def submit(self, turn: Turn, jobs: Sequence[Admitted]) -> list[JobId]:
        """Append jobs to the queue's end, held where there are limits on what runs, and return their ids.

        Raises:
            RefusedError: 422 and 429, they would be too many, or could never be let go; none is taken.
        """
        asked: dict[Bound, list[JobSpec]] = defaultdict(list)
        for job in jobs:
            for bound in self._quotas.bounds(job.spec.user):
                asked[bound].append(job.spec)
        for bound, specs in asked.items():
            self._demand_room(bound, specs, turn)
        for bound, specs in asked.items():
            if bound.limits.submits_per_minute is not None:
                self._submitted[bound.name].extend([turn.now_s] * len(specs))
        ids = changes.submit(turn, jobs)
        for job_id, job in zip(ids, jobs, strict=True):
            self._hold(turn, job_id, job.spec.user)
        return ids

    def resume(self, turn: Turn, job_id: JobId, by: str) -> None:
        """Let a suspended job go on; a waiting one waits for the limits it is under, as when it was submitted.

        Raises:
            RefusedError: 404, there is no such live job; 409, a limit holds it.
        """
        job = turn.board.jobs.get(job_id)
        if job is not None and is_held(job):
            text = f"job {job_id} waits for {job.holds[0].by}: it starts when other jobs under it have ended"
            raise RefusedError.because(409, text)
        changes.resume(turn, job_id, by)
        if job is not None and job.holds:
            self._hold(turn, job_id, job.spec.user)

    def _hold(self, turn: Turn, job_id: JobId, user: str) -> None:
        holding = [bound for bound in self._quotas.bounds(user) if bound.limits.holds]
        if holding:
            turn.events.append(SuspendRequested(job_id, _told(holding), SuspendVia.LIMIT))

    def _demand_room(self, bound: Bound, asked: Sequence[JobSpec], turn: Turn) -> None:
        (name, limits), most = bound, max(spec.gpus for spec in asked)
        if limits.gpus is not None and most > limits.gpus:
            raise RefusedError.because(422, f"must be at most {limits.gpus}, the limit of {name}, got {most}", "gpus")
        if limits.running == 0:
            raise RefusedError.because(422, f"{name} may run no jobs", "user")
        if limits.queued is not None:
            waiting = self._waiting(bound, turn)
            if waiting + len(asked) > limits.queued:
                text = f"{name} may have {count(limits.queued, 'job')} waiting, and has {waiting}"
                raise RefusedError.because(TOO_MANY, f"{text}; submit {len(asked)} more when some have started")
        self._demand_pace(bound, len(asked), turn.now_s)

    def _waiting(self, bound: Bound, turn: Turn) -> int:
        """Jobs under a limit that wait, those of this turn included."""
        users = [job.spec.user for job in turn.board.jobs.values() if job.state is JobState.QUEUED]
        users += [job.spec.user for job in turn.admitted.values()]
        is_under = {user: bound in self._quotas.bounds(user) for user in set(users)}
        return sum(is_under[user] for user in users)

    def _demand_pace(self, bound: Bound, asked: int, now_s: float) -> None:
        most, recent = bound.limits.submits_per_minute, self._submitted[bound.name]
        while recent and recent[0] <= now_s - MINUTE_S:
            recent.popleft()
        if most is not None and len(recent) + asked > most:
            text = f"{bound.name} may submit {count(most, 'job')} a minute, and has submitted {len(recent)}"
            raise RefusedError.because(TOO_MANY, f"{text}; wait, or send fewer at once")

    def releases(self, board: Board) -> Iterator[Event]:
        """Yield what lets held jobs go, higher priorities first, as far as the limits they are under allow."""
        if not self._has_to_look:
            return
        held = [job for job in board.jobs.values() if is_held(job)]
        self._has_to_look = bool(held) or self._quotas.are_any
        if not held:
            return
        had, closed = self._had(board), set[str]()
        for job in sorted(held, key=lambda job: (-job.spec.priority, job.id)):
            bounds = self._quotas.bounds(job.spec.user)
            if any(bound.name in closed for bound in bounds):
                continue
            # Whoever comes behind one that does not fit waits for it: else small ones would go for ever before it.
            full = {bound.name for bound in bounds if not _fits(job, bound, had[bound.name])}
            closed |= full
            if not full:
                _count(had, job, bounds)
                yield ResumeRequested(job.id, _told(bounds))

    def _had(self, board: Board) -> dict[str, tuple[int, int]]:
        """Jobs and GPUs that users and groups have been let have."""
        had: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for job in board.jobs.values():
            if not is_held(job):
                _count(had, job, self._quotas.bounds(job.spec.user))
        return had


def is_held(job: Job) -> bool:
    """Whether a limit keeps a job from starting."""
    return job.holds != () and all(hold.kind is HoldKind.LIMIT for hold in job.holds)


def _count(had: dict[str, tuple[int, int]], job: Job, bounds: Sequence[Bound]) -> None:
    for bound in bounds:
        jobs, gpus = had[bound.name]
        had[bound.name] = (jobs + 1, gpus + job.spec.gpus)


def _fits(job: Job, bound: Bound, had: tuple[int, int]) -> bool:
    (jobs, gpus), limits = had, bound.limits
    return _within(jobs + 1, limits.running) and _within(gpus + job.spec.gpus, limits.gpus)


def _within(count: int, most: int | None) -> bool:
    return most is None or count <= most


def _told(bounds: Sequence[Bound]) -> str:
    return " or ".join([bound.told() for bound in bounds if bound.limits.holds])
