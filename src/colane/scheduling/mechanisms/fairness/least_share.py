"""Dominant resource fairness over users: GPUs, cores and host memory (Ghodsi et al., NSDI 2011, algorithm 1).

A user's dominant share is the largest part of a pool's GPUs, cores or host memory that its running jobs hold, over the
weight. The next job of the user with the smallest share is asked. Within a user, higher priorities go first, then the
first to come; of users with equal shares the one whose next job came first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import BoundOrder, Candidate, Classes, ClassKey
from colane.scheduling.engine.user_weights import ALL_ALIKE, UserWeights
from colane.scheduling.engine.usual import UsualOrder
from colane.scheduling.engine.walks import by_priority, rank_by_priority
from colane.scheduling.mechanisms.fairness.shares import ShareBy, UserShares
from colane.scheduling.mechanisms.fairness.users import Lines, Users


@dataclass(frozen=True, slots=True)
class LeastShare(UsualOrder):
    """Jobs of the user that has least; the module says how that is counted."""

    share_by: ShareBy = ShareBy.DOMINANT  # what counts as the share
    user_weights: UserWeights = ALL_ALIKE  # what the share is divided by

    def bind(self, draft: Draft, pool: str) -> BoundOrder:
        shares = UserShares(draft.view, pool, self.share_by, self.user_weights)

        def walk(_worth: Callable[[], Classes]) -> _ByShare:
            return _ByShare(draft, pool, shares)

        def reason(job: Job, candidate: Candidate) -> Reason:
            return _reason(shares, job, candidate)

        return BoundOrder(walk=walk, rank=rank_by_priority, displaces=by_priority, reason=reason)


class UserLine:
    """A user's waiting jobs, higher priorities first, then the first to come; classes may be left."""

    def __init__(self, lines: Lines) -> None:
        jobs = [(-priority, need, iter(line)) for (priority, need), line in lines.items()]
        self._heads: list[tuple[int, JobId, NeedClass, Iterator[JobId]]] = [
            (order, next(line), need, line) for order, need, line in jobs
        ]
        heapify(self._heads)

    def __bool__(self) -> bool:
        return bool(self._heads)

    @property
    def first(self) -> JobId:
        """The job whose turn it is."""
        return self._heads[0][1]

    def step(self) -> None:
        """It is the next one's turn."""
        order, _, need, line = self._heads[0]
        following = next(line, None)
        if following is None:
            heappop(self._heads)
        else:
            heapreplace(self._heads, (order, following, need, line))

    def skip_class(self) -> None:
        """No turn for any job with the needs of the first, of this priority."""
        heappop(self._heads)


class _ByShare:
    """A walk that asks the user with the smallest dominant share, given what has been decided."""

    def __init__(self, draft: Draft, pool: str, shares: UserShares) -> None:
        self._draft = draft
        self._shares = shares
        self._lines = {user: UserLine(lines) for user, lines in draft.view.derived(Users).lines(pool).items()}
        self._turns = [(shares.weighted(user), line.first, user) for user, line in self._lines.items()]
        heapify(self._turns)
        self._left: set[ClassKey] = set()
        self._has_left = False

    def __iter__(self) -> Iterator[Job]:
        while self._turns:
            _, _, user = self._turns[0]
            line = self._lines[user]
            job = self._draft.view.job(line.first)
            key = (job.spec.priority, job.need)
            self._has_left = key in self._left
            if not self._has_left:
                yield job
            if self._has_left:
                self._left.add(key)
                line.skip_class()
            else:
                line.step()
            if line:
                heapreplace(self._turns, (self._shares.weighted(user), line.first, user))
            else:
                heappop(self._turns)

    def skip_class(self) -> None:
        self._has_left = True

    def took(self, _job: Job, spec: JobSpec) -> None:
        self._shares.add(spec)


def _reason(shares: UserShares, job: Job, candidate: Candidate) -> Reason:
    share, resource = shares.dominant(job.spec.user)
    facts: dict[str, str | int | float] = {
        "gpu": str(candidate.gpus[0].id),
        "user": job.spec.user or "its owner",
        "share": share,
        "resource": resource,
    }
    return Reason(Why.LEAST_SHARE, facts)
