"""What is demanded when jobs are submitted: not too many that wait, not too fast, none that could never run.

Jobs over a limit on what runs are held by the core (`core.cluster.limits`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from colane.core.cluster.limits import LimitBook, gpus_counted
from colane.core.eligibility import hold_reason
from colane.core.events import GroupsSeen
from colane.model.job import JobId
from colane.model.limits import QOS_LABEL, Bound, Quotas
from colane.model.phases import Hold, HoldKind
from colane.model.sentences import sentence_of
from colane.model.words import count
from colane.server.board.read_model import LIMITS_KEY
from colane.server.board.slices import waiting, waiting_of
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.store.store import META, Put
from colane.server.writer import changes
from colane.server.writer.limits import SystemGroups, tables_of

TOO_MANY: Final = 429
MINUTE_S: Final = 60.0


class QuotaKeeper:
    """Refuses what is over a limit, and tells the core of which groups of the system users are."""

    def __init__(self, quotas: Quotas | None = None) -> None:
        self._quotas = quotas or Quotas()
        self._groups = SystemGroups()
        self._told: dict[str, tuple[str, ...]] = {}
        self._submitted: dict[str, deque[float]] = defaultdict(deque)

    def limit(self, quotas: Quotas) -> None:
        """Go by these from now on; the core is told anew of which groups users are."""
        self._quotas = quotas
        self._told.clear()

    def submit(
        self, turn: Turn, jobs: Sequence[Admitted], book: LimitBook | None, texts: Sequence[str] | None = None
    ) -> list[JobId]:
        """Append jobs to the queue's end, and return their ids; see `changes.submit`. `book` tells what is used.

        Raises RefusedError: 422 and 429, they would be too many, or could never be let go; none is taken.
        """
        of_user = defaultdict[tuple[str, str], list[Admitted]](list)
        asked = defaultdict[Bound, list[Admitted]](list)
        for job in jobs:
            of_user[job.spec.user, job.spec.labels.get(QOS_LABEL, "")].append(job)
        for (user, qos), own in of_user.items():
            for bound in self._bounds(user, qos):
                asked[bound] += own
            _demand_budget(own, book)
        for bound, own in asked.items():
            self._demand_room(bound, own, turn)
        for bound, own in asked.items():
            if bound.limits.submits_per_minute is not None:
                turn.submissions[bound.name] += sum(job.waiting for job in own)
        self.tell_groups(turn, {user for user, _ in of_user})
        return changes.submit(turn, jobs, texts)

    def count(self, turn: Turn) -> None:
        """Remember what was submitted, and told of groups, in a turn that has become durable."""
        self._told.update(turn.groups)
        for name, jobs in turn.submissions.items():
            self._submitted[name].extend([turn.now_s] * jobs)

    def resume(self, turn: Turn, job_id: JobId, by: str, begin: Hold | None = None) -> None:
        """Let a suspended job go on; one that waits not before a time, where there is one.

        Raises RefusedError: 404, there is no such live job; 409, a limit holds it.
        """
        job = turn.read_model.jobs.get(job_id)
        if (
            job is not None
            and job.array is None
            and job.holds
            and not (job.is_held(HoldKind.USER) or job.is_held(HoldKind.BEGIN))
        ):
            if job.is_held(HoldKind.AFTER) or job.is_held(HoldKind.ARRAY):
                text = f"job {job_id} is not held by its owner: {sentence_of(hold_reason(job))}"
            else:
                text = f"job {job_id} waits for {job.holds[0].by}: it starts when other jobs under it have ended"
            raise RefusedError.because(409, text)
        changes.resume(turn, job_id, by, begin)

    def tell_groups(self, turn: Turn, users: Iterable[str]) -> None:
        """Tell the core of these users' groups, where it does not know of them."""
        names = self._quotas.of_system
        for user in sorted(users) if names else ():
            groups = tuple([name for name in names if name in self._groups.of(user)])
            if groups != turn.groups.get(user, self._told.get(user, ())):
                turn.groups[user] = groups
                turn.events.append(GroupsSeen(user, groups))

    def tell_limits(self, turn: Turn, by: str = "") -> None:
        """Add to the story of events which limits hold, where they were read again or are not those told last."""
        now, was = tables_of(self._quotas), turn.read_model.limits_told
        if by or (now != was if was is not None else self._quotas.hold or self._quotas.guarantees):
            turn.record("settings-read", by=by or "start", limits=now)
            turn.puts.append(Put(META, LIMITS_KEY, now))
            turn.read_model.limits_told = now

    def forget_told(self) -> None:
        """The core was made anew: it knows of no groups."""
        self._told.clear()

    def _bounds(self, user: str, qos: str = "") -> tuple[Bound, ...]:
        return self._quotas.bounds(user, self._groups.of(user) if self._quotas.of_system else (), qos)

    def _demand_room(self, bound: Bound, asked: Sequence[Admitted], turn: Turn) -> None:
        (name, limits), most = bound, max(gpus_counted(job.spec) for job in asked)
        number = sum(job.waiting for job in asked)
        if limits.gpus is not None and most > limits.gpus:
            raise RefusedError.because(422, f"must be at most {limits.gpus}, the limit of {name}, got {most}", "gpus")
        if limits.running == 0:
            raise RefusedError.because(422, f"{name} may run no jobs", "user")
        if limits.queued is not None:
            queued = self._waiting(bound, turn)
            if queued + number > limits.queued:
                text = f"{name} may have {count(limits.queued, 'job')} waiting, and has {queued}"
                raise RefusedError.because(
                    TOO_MANY,
                    f"{text}{_of_arrays(asked)}; submit {number} more when some have started, "
                    "or ask an operator for a larger `queued` (colane server --limits FILE)",
                )
        self._demand_pace(bound, asked, turn)

    def _waiting(self, bound: Bound, turn: Turn) -> int:
        """Jobs under a limit that wait, those of this turn included."""
        coming = waiting(turn.slices) + waiting(turn.read_model.entering.values())
        jobs = turn.read_model.queued + coming + waiting_of(turn.admitted.values())
        return sum(number for user, number in jobs.items() if bound in self._bounds(user))

    def _demand_pace(self, bound: Bound, asked: Sequence[Admitted], turn: Turn) -> None:
        most, recent = bound.limits.submits_per_minute, self._submitted[bound.name]
        while recent and recent[0] + MINUTE_S <= turn.now_s:
            recent.popleft()
        submitted = len(recent) + turn.submissions[bound.name]
        if most is not None and submitted + sum(job.waiting for job in asked) > most:
            text = f"{bound.name} may submit {count(most, 'job')} a minute, and has submitted {submitted}"
            text += _of_arrays(asked)
            raise RefusedError.because(TOO_MANY, f"{text}; wait, or send fewer at once")


def _demand_budget(asked: Sequence[Admitted], book: LimitBook | None) -> None:
    """Jobs of one user that are served alike. Raises RefusedError: 429, a budget of theirs is used up."""
    if spent := next(filter(None, [book.spent(job.spec) for job in asked]), "") if book is not None else "":
        fix = "it begins anew with the next (0:00 UTC), or ask an operator for a larger `gpu_hours_per_month`"
        raise RefusedError.because(TOO_MANY, f"{spent}; {fix} (colane server --limits FILE)")


def _of_arrays(asked: Sequence[Admitted]) -> str:
    return " (elements of arrays count each)" if any(job.array is not None for job in asked) else ""
