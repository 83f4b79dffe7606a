"""Shortest job first: the job believed to run for the shortest time goes first; jobs that do not fit are passed.

A run time is steps times believed step time, else the time limit; jobs of unknown length come last, by arrival. With
true step times as beliefs it is the oracle of the textbooks (e.g. Silberschatz et al., section 5.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.policies.blocks.lengths import by_length
from colane.policies.blocks.refusals import refuse_class
from colane.policies.blocks.serving import Rank, Ranked, may_start, priority_of, start_on_free, with_enough_free
from colane.policies.blocks.times import RunTimes


@dataclass(frozen=True, slots=True)
class ShortestJobFirst:
    """See the module."""

    name: str = "sjf"

    def plan(self, view: ClusterView) -> Plan:
        """Start every job that finds a place, the shortest first."""
        draft = Draft(view)
        for pool in view.pools:
            if may_start(draft, pool):
                _plan_pool(draft, pool)
        return draft.plan()


def _plan_pool(draft: Draft, pool: str) -> None:
    times = RunTimes(draft)

    def rank(job: Job) -> Rank:
        run_s = times.run_s(job.spec)
        return priority_of(job.spec), inf if run_s is None else run_s

    explains = draft.view.explain is not None
    classes = draft.view.queue(pool).classes if explains else with_enough_free(draft, pool)
    order = by_length(draft, rank)
    jobs = Ranked(draft.view.jobs, [order(key, line) for key, line in classes.items()])
    for job in jobs:
        if start_on_free(draft, job):
            if not may_start(draft, pool):
                return
        else:
            refuse_class(draft, job)
            jobs.leave_class()
