"""FIFO with EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001).

Jobs start in order of priority, then of arrival. The first that finds no place gets a reservation: the node that has
room for it first, by the time limits of the jobs that run (where there is none, by steps times believed step time).
Others may pass it only if they do not delay it: on other nodes, or on that node if they end before or leave it enough.
Where no bound is known, nobody passes. A job no node of its pool can ever hold is passed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from colane.core.draft import Draft, Walk
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.policies.blocks.refusals import behind, refuse, refuse_class
from colane.policies.blocks.reservation import Reservation, backfill, reserve
from colane.policies.blocks.serving import may_start, start_on_free
from colane.policies.blocks.times import RunTimes


@dataclass(frozen=True, slots=True)
class EasyBackfill:
    """See the module.

    Attributes:
        depth_max: Looking for jobs that may pass ends when this many could not.
    """

    name: str = "easy-backfill"
    depth_max: int = 1000

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order, then whoever does not delay the first that has to wait."""
        draft = Draft(view)
        for pool in view.pools:
            if may_start(draft, pool):
                self._plan_pool(draft, pool)
        return draft.plan()

    def _plan_pool(self, draft: Draft, pool: str) -> None:
        times = RunTimes(draft)
        for job in map(draft.view.job, draft.view.queue(pool)):
            if start_on_free(draft, job):
                continue
            if not may_start(draft, pool):
                return
            reservation = reserve(draft, job.spec, times)
            if reservation is None:
                refuse(draft, job)
                continue
            self._backfill(draft, pool, job, reservation, times)
            return

    def _backfill(self, draft: Draft, pool: str, head: Job, reservation: Reservation, times: RunTimes) -> None:
        _wait_for(draft, head, reservation)
        draft.wait_rest(pool, behind(head.id))
        if reservation.at_s == inf:
            return
        walk, left = Walk(draft, pool, {}), self.depth_max
        for job in walk:
            if job.id == head.id or not draft.is_waiting(job.id):
                continue
            gpus, barred = backfill(draft, job, reservation, times)
            if gpus is not None:
                draft.start(job, gpus, Reason(Why.BACKFILL, {"gpu": str(gpus[0].id)}, (head.id,)))
            elif barred:
                draft.wait(job.id, Reason(Why.WOULD_DELAY, {}, (head.id,)))
            else:
                refuse_class(draft, job)
                walk.leave_class()
            left -= gpus is None
            if not left or not may_start(draft, pool):
                return


def _wait_for(draft: Draft, head: Job, reservation: Reservation) -> None:
    node = reservation.node
    if reservation.at_s == inf:
        refuse(draft, head)
        return
    in_s = max(0.0, reservation.at_s - draft.now_s)
    draft.wait(head.id, Reason(Why.RESERVED, {"node": node.node.name, "in_s": in_s}, tuple(node.jobs)))
