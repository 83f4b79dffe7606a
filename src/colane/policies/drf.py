"""Dominant resource fairness over users: GPUs, cores and host memory (Ghodsi et al., NSDI 2011, algorithm 1).

A user's dominant share is the largest part of a pool's GPUs, cores or host memory that his running jobs hold. The next
job of the user with the smallest share starts, if it finds a place; a class of jobs that finds none is passed.
Within a user, higher priorities go first, then the first to come. Nobody is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.view import ClusterView
from colane.model.job import Job, NeedClass
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.refusals import refuse_class
from colane.policies.blocks.serving import may_start
from colane.policies.blocks.shares import UserShares
from colane.policies.blocks.users import Turns, Users


@dataclass(frozen=True, slots=True)
class DominantResourceFairness:
    """See the module."""

    name: str = "drf"

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs, always of the user who has least."""
        draft = Draft(view)
        for pool in view.pools:
            if may_start(draft, pool):
                _plan_pool(draft, pool)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str) -> None:
    shares = UserShares(draft.view, pool)
    lines = {user: Turns(lines) for user, lines in draft.view.derived(Users).lines(pool).items()}
    refused: set[NeedClass] = set()
    turns = [(shares.dominant(user)[0], user) for user in lines]
    heapify(turns)
    while turns:
        _, user = heappop(turns)
        job = _serve(draft, shares, lines[user], refused)
        if job is not None and may_start(draft, pool):
            heappush(turns, (shares.dominant(user)[0], user))


def _serve(draft: Draft, shares: UserShares, line: Turns, refused: set[NeedClass]) -> Job | None:
    """Start the first of a user's jobs that finds a place."""
    while line:
        job = draft.view.job(line.first)
        if job.spec.need in refused:
            line.leave_class()
            continue
        gpus = first_fit(draft, job.spec)
        if gpus is None:
            refuse_class(draft, job)
            refused.add(job.spec.need)
            line.leave_class()
            continue
        line.step()
        draft.start(job, gpus, _reason(shares, job, gpus[0]))
        shares.add(job.spec)
        return job
    return None


def _reason(shares: UserShares, job: Job, gpu: GpuLoad) -> Reason:
    share, resource = shares.dominant(job.spec.user)
    facts: dict[str, str | int | float] = {
        "gpu": str(gpu.id),
        "user": job.spec.user or "its owner",
        "share": share,
        "resource": resource,
    }
    return Reason(Why.LEAST_SHARE, facts)
