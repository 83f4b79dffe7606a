"""Decayed-usage fair share: users that have used least of late are asked first, in any policy.

Jobs of higher priority go first, then those of the user whose GPU seconds count least now (`core.usage`); jobs of one
user in the policy's own order. No running job is stopped for that: it only says which is next when there is room. A job
that has waited beyond the policy's bound is served first as ever. Jobs taken in one plan count from the next one on.

Source: multifactor priority of Slurm; decay as in its PriorityDecayHalfLife.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from math import fsum

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.usage import counted_gpu_s
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import BoundOrder, Classes, ClassKey, Rank
from colane.scheduling.engine.walks import ByRank, Entry, by_priority, priority_of, rank_by_priority
from colane.scheduling.mechanisms.fairness.users import Users


@dataclass(frozen=True, slots=True)
class PastUse:
    """Of equal priority the user that has used least goes first."""

    usage_half_life_s: float | None = None  # use counts half as much after so many seconds; None counts none

    def bind(self, draft: Draft, pool: str, own: BoundOrder) -> BoundOrder:
        return by_usage(draft, pool, own) if self.usage_half_life_s else own


def by_usage(draft: Draft, pool: str, own: BoundOrder) -> BoundOrder:
    """The order of a policy, with the jobs of users first that have used least.

    Args:
        draft: Where decisions are made.
        pool: The pool.
        own: The policy's own order.
    """
    usage, key = _Usage(draft.view), own.class_key

    def rank(job: Job) -> Rank:
        own_key = own.rank(job)[1:] if key is None else key(job.need)
        return priority_of(job.spec), usage.of(job.spec.user), *own_key

    def walk(worth: Callable[[], Classes]) -> ByRank:
        lines = _lines(draft, pool, worth(), rank, is_by_arrival=own.rank is rank_by_priority)
        return ByRank(draft.view.jobs, lines)

    return BoundOrder(
        walk=walk,
        rank=rank,
        displaces=by_priority,
        quantum_s=own.quantum_s,
        until_s=own.until_s,
        preferred=own.preferred,
        weigh=own.weigh,
        left_s=own.left_s,
        soonest_end_s=own.soonest_end_s,
        drains_s=own.drains_s,
        awaits=own.awaits,
        exchanges=own.exchanges,
    )


class _Usage:
    """Of each user asked about, in one plan."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: dict[str, float] = {}

    def of(self, user: str) -> float:
        """GPU seconds as they count now, of all pools."""
        known = self._known.get(user)
        if known is None:
            now_s, book = self._view.now_s, self._view.usage
            holding = self._view.derived(UserHoldings).of(user)
            # Summed exactly, so that it does not matter in what order jobs came.
            known = fsum([book.of(user, now_s), *[counted_gpu_s(job, now_s, book.half_life_s) for job in holding]])
            self._known[user] = known
        return known


def _lines(
    draft: Draft, pool: str, worth: Classes, rank: Callable[[Job], Rank], *, is_by_arrival: bool
) -> Iterator[tuple[ClassKey, Iterator[Entry]]]:
    """A line for each user and class, by rank; where a policy goes by arrival alone all of one line are of one rank."""
    jobs = draft.view.jobs
    for lines in draft.view.derived(Users).lines(pool).values():
        for key, line in lines.items():
            first = line.first if key in worth else None
            if first is not None and is_by_arrival:
                yield key, zip(repeat(rank(jobs[first])), line)
            elif first is not None:
                yield key, iter(sorted([(rank(jobs[job]), job) for job in line]))


# -- which jobs hold GPUs


class UserHoldings(NodesMatterNot):
    """Jobs that hold GPUs, by user; kept from one plan to the next."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[JobId, Job]] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and old.placement is not None:
            jobs = self._by_user[old.spec.user]
            jobs.pop(old.id, None)
            if not jobs:
                del self._by_user[old.spec.user]
        if new is not None and new.placement is not None:
            self._by_user.setdefault(new.spec.user, {})[new.id] = new

    def of(self, user: str) -> Iterable[Job]:
        """Jobs of a user."""
        return self._by_user.get(user, {}).values()
