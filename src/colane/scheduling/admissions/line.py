"""Who may pass whom: nobody the head of the line, or who does not delay its reservation, or so many."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.admissions.reservation import Reservation, reserve
from colane.scheduling.engine.contracts import Desk, Offer, Verdict
from colane.scheduling.engine.refusals import behind, refuse
from colane.scheduling.engine.times import RunTimes
from colane.scheduling.engine.usual import UsualRule


@dataclass(frozen=True, slots=True)
class HeadOfLine:
    """The first job that finds nothing holds up all behind it.

    Attributes:
        strict: Whether it does at all.
    """

    strict: bool = True

    def bind(self, desk: Desk) -> HeadOfLineRule | None:
        """See `Admission`."""
        if not self.strict:
            return None
        desk.skips_hopeless = False
        return HeadOfLineRule(desk)


class HeadOfLineRule(UsualRule):
    """See `HeadOfLine`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def refused(self, job: Job, _verdict: Verdict) -> Verdict:
        """See `Rule`."""
        draft, desk = self._desk.draft, self._desk
        until_s = desk.watch_overdue()
        is_known = desk.queue.is_arrival and all(finder.only_free for finder in desk.finders)
        if is_known and not draft.held and draft.now_s < until_s:
            draft.block(job, desk.least(job), until_s)
        draft.wait_rest(desk.pool, behind(job.id))
        return Verdict.STOP


@dataclass(frozen=True, slots=True)
class DepthMax:
    """Looking for jobs that may pass ends when so many were looked at one by one.

    Attributes:
        depth_max: So many.
    """

    depth_max: int = 1000

    def bind(self, desk: Desk) -> DepthRule:
        """See `Admission`."""
        return DepthRule(desk, self.depth_max)


class DepthRule(UsualRule):
    """See `DepthMax`."""

    def __init__(self, desk: Desk, depth_max: int) -> None:
        self._desk = desk
        self._depth_max = self._left = depth_max

    def walks(self) -> None:
        """See `Rule`: another walk looks as far as a plan made anew would."""
        self._left = self._depth_max

    def refused(self, _job: Job, verdict: Verdict) -> Verdict:
        """See `Rule`."""
        if verdict is Verdict.NEXT_JOB:
            self._left -= 1
        if self._left > 0:
            return verdict
        self._desk.watch_overdue()
        return Verdict.STOP


@dataclass(frozen=True, slots=True)
class Backfill:
    """EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001).

    The first job that finds nothing gets a reservation: the node that has room for it first, by the time limits of the
    jobs that run (where there is none, by steps times believed step time). Others may pass it only if they do not delay
    it: on other nodes, or on that node if they end before or leave it enough. Where no bound is known, nobody passes. A
    job no node of its pool can ever hold is passed.

    Attributes:
        depth_max: Looking for jobs that may pass ends when this many could not.
    """

    depth_max: int = 1000

    def bind(self, desk: Desk) -> BackfillRule | None:
        """See `Admission`; nothing is reserved while nobody could start."""
        if not desk.finders:
            return None
        desk.skips_hopeless = False
        return BackfillRule(desk, self.depth_max)


class BackfillRule(UsualRule):
    """See `Backfill`."""

    def __init__(self, desk: Desk, depth_max: int) -> None:
        self.judges = True
        self._desk = desk
        self._depth_max = self._left = depth_max
        self._times = RunTimes(desk.draft)
        self._head: Job | None = None
        self._reservation: Reservation | None = None
        self._is_barred = False

    def walks(self) -> None:
        """See `Rule`: who is first now gets the reservation, as in a plan made anew."""
        self._left, self._is_barred = self._depth_max, False
        self._head = self._reservation = None
        self._desk.reason = self._desk.queue.reason

    def allows(self, _job: Job, spec: JobSpec, offer: Offer) -> bool:
        """See `Rule`."""
        reservation = self._reservation
        if reservation is None:
            return True
        if not self._touches(offer, reservation):
            return True
        if reservation.allows(spec, offer.gpus[0].gpu.type, self._end_s(offer, spec)):
            return True
        self._is_barred = True
        return False

    def took(self, job: Job, spec: JobSpec, offer: Offer) -> None:
        """See `Rule`."""
        reservation, self._is_barred = self._reservation, False
        if reservation is not None and job is not self._head and self._touches(offer, reservation):
            reservation.use(spec, offer.gpus[0].gpu.type, self._end_s(offer, spec))

    def refused(self, job: Job, verdict: Verdict) -> Verdict:
        """See `Rule`."""
        if self._reservation is None:
            return self._reserve(job, verdict) if self._may_others_start(job) else Verdict.STOP
        draft, barred = self._desk.draft, self._is_barred
        self._is_barred, self._left = False, self._left - 1
        if barred and self._head is not None:
            draft.wait(job.id, Reason(Why.WOULD_DELAY, {}, (self._head.id,)))
            verdict = Verdict.NEXT_JOB
        return verdict if self._left > 0 else Verdict.STOP

    def _may_others_start(self, job: Job) -> bool:
        """Whether a reservation matters: somebody may start behind a job, or asks why he waits."""
        desk = self._desk
        return desk.explains or any(finder.has_hope(desk.queue.rank(job)) for finder in desk.finders)

    def _reserve(self, job: Job, verdict: Verdict) -> Verdict:
        """The head of the line; one that no node can ever hold is not it."""
        draft = self._desk.draft
        found = reserve(draft, self._desk.least(job), self._times)
        if found is None:
            return verdict
        self._head, self._reservation, self._desk.reason = job, found, self._reason
        self._desk.watch_overdue()
        draft.wait_rest(self._desk.pool, behind(job.id))
        if found.at_s == inf:
            refuse(draft, job, self._desk.least(job))
            return Verdict.STOP
        in_s = max(0.0, found.at_s - draft.now_s)
        facts: dict[str, str | int | float] = {"node": found.node.node.name, "in_s": in_s}
        draft.wait(job.id, Reason(Why.RESERVED, facts, tuple(found.node.jobs)))
        return Verdict.NEXT_JOB

    @staticmethod
    def _touches(offer: Offer, reservation: Reservation) -> bool:
        name = reservation.node.node.name
        return any(gpu.id.node == name for gpu in offer.gpus)

    def _end_s(self, offer: Offer, spec: JobSpec) -> float | None:
        bound_s = self._times.bound_s(spec, offer.gpus[0].gpu.type, len(offer.gpus))
        return None if bound_s is None else self._desk.draft.now_s + bound_s

    def _reason(self, _job: Job, offer: Offer) -> Reason:
        head = () if self._head is None else (self._head.id,)
        return Reason(Why.BACKFILL, {"gpu": str(offer.gpus[0].id)}, head)
