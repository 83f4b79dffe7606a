"""Dominant resource fairness over users: GPUs, cores and host memory (Ghodsi et al., NSDI 2011, algorithm 1).

A user's dominant share is the largest part of a pool's GPUs, cores or host memory that his running jobs hold. The next
job of the user with the smallest share starts, if it finds a place; a class of jobs that finds none is passed.
Within a user, higher priorities go first, then the first to come. Nobody is stopped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job, NeedClass
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.placers import first_fit
from colane.policies.blocks.refusals import refuse_class
from colane.policies.blocks.serving import may_start
from colane.policies.blocks.shares import UserShares


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
    lines = _by_user(draft, pool)
    refused: set[NeedClass] = set()
    turns = [(shares.dominant(user)[0], user) for user in lines]
    heapify(turns)
    while turns:
        _, user = heappop(turns)
        job = _serve(draft, shares, lines[user], refused)
        if job is not None and may_start(draft, pool):
            heappush(turns, (shares.dominant(user)[0], user))


def _by_user(draft: Draft, pool: str) -> dict[str, deque[Job]]:
    lines: dict[str, deque[Job]] = {}
    jobs = draft.view.jobs
    for job_id in draft.view.queue(pool):
        job = jobs[job_id]
        lines.setdefault(job.spec.user, deque()).append(job)
    return lines


def _serve(draft: Draft, shares: UserShares, line: deque[Job], refused: set[NeedClass]) -> Job | None:
    """Start the first of a user's jobs that finds a place."""
    while line:
        job = line.popleft()
        if job.spec.need in refused:
            continue
        gpus = first_fit(draft, job.spec)
        if gpus is None:
            refuse_class(draft, job)
            refused.add(job.spec.need)
            continue
        share, resource = shares.dominant(job.spec.user)
        facts: dict[str, str | int | float] = {
            "gpu": str(gpus[0].id),
            "user": job.spec.user or "its owner",
            "share": share,
            "resource": resource,
        }
        draft.start(job, gpus, Reason(Why.LEAST_SHARE, facts))
        shares.add(job.spec)
        return job
    return None
