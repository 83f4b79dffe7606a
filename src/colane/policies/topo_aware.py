"""Topology-aware placement (paper C, sections 4.3 and 4.4): each job goes to the free GPUs with the highest utility.

Utility falls with the distance between a job's GPUs, with the interference of neighbours on the same sockets, and with
the GPUs left free beside it. Jobs are taken in order of priority, then of arrival; one that does not fit is passed.
`topo-aware` always places when there is room. `topo-aware-p` postpones a job while the best utility is below its
`utility_min`, or a running neighbour would fall below its own. A job that has waited for `max_postpone_s` goes first,
asks for no utility any more, and has GPUs kept for it, so that every wait is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from colane.core.draft import Draft, Walk
from colane.core.view import ClusterView
from colane.model.job import Job
from colane.model.plan import Plan
from colane.model.reason import Why
from colane.perf.neighbours import Measure
from colane.perf.utility import NEUTRAL, Weights
from colane.policies.blocks.joining import SPEEDUP_MIN, best_company
from colane.policies.blocks.keeping import keep_room
from colane.policies.blocks.refusals import behind, refuse, refuse_class
from colane.policies.blocks.serving import may_start
from colane.policies.blocks.sharing import share_reason
from colane.policies.blocks.utility_placer import Placer, Places
from colane.policies.blocks.utility_reasons import best_utility, postponed


@dataclass(frozen=True, slots=True)
class TopoAware:
    """See the module.

    Attributes:
        postpones: Whether utilities below a job's least make it wait.
        placer: How a job is mapped onto a node: every set of GPUs, or dual recursive bipartitioning.
        weights: Of communication, interference and fragmentation.
        measure: How slowdowns by neighbours count.
        max_postpone_s: A job that has waited so long goes first and asks for no utility; None never.
        strict: Whether the first job that finds no place blocks those behind it.
        depth_max: Looking for jobs that may pass ends when so many were postponed.
        company_max: Jobs on one GPU at most; above 1 a job that would wait joins others where that pays.
    """

    name: str = "topo-aware"
    postpones: bool = False
    placer: Placer = Placer.EXACT
    weights: Weights = NEUTRAL
    measure: Measure = Measure.EXCESS
    max_postpone_s: float | None = 3600.0
    strict: bool = False
    depth_max: int = 1000
    company_max: int = 1

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order where they lie best."""
        draft = Draft(view)
        for pool in view.pools:
            if self._shares or may_start(draft, pool):
                self._plan_pool(draft, pool)
        return draft.plan()

    @property
    def _shares(self) -> bool:
        """Whether it puts several jobs on a GPU: who has just started may be joined, so the queue is walked again."""
        return self.company_max > 1

    def _plan_pool(self, draft: Draft, pool: str) -> None:
        places = Places(draft, pool, self.placer, self.weights, spares_neighbours=self.postpones, measure=self.measure)
        started = True
        while started:
            decided = len(draft.actions)
            self._serve_overdue(draft, pool, places)
            self._serve(draft, pool, places)
            started = self._shares and len(draft.actions) > decided

    def _serve(self, draft: Draft, pool: str, places: Places) -> None:
        """Walk the queue once."""
        walk, left = Walk(draft, pool, {}), self.depth_max
        for job in walk:
            if not draft.is_waiting(job.id) or job.id in draft.waits:
                continue
            if self._start(draft, places, job):
                if not self._shares and not may_start(draft, pool):
                    return
                continue
            if self.strict:
                self._refuse(draft, places, job)
                draft.wait_rest(pool, behind(job.id))
                return
            left -= self._pass(draft, places, walk, job)
            if not left:
                return

    def _serve_overdue(self, draft: Draft, pool: str, places: Places) -> None:
        """Start jobs past their waiting time in order; the first that finds no place has GPUs kept for it."""
        for job in map(draft.view.job, draft.view.queue(pool)):
            if not self._is_overdue(job, draft.now_s):
                return
            if draft.is_waiting(job.id) and not self._start(draft, places, job):
                self._refuse(draft, places, job)
                if job.id in draft.held.values():
                    return
                kept = keep_room(draft, job)
                for node in kept:
                    places.changed(node)
                if kept:
                    return

    def _is_overdue(self, job: Job, now_s: float) -> bool:
        return self.max_postpone_s is not None and now_s - job.submit_s >= self.max_postpone_s

    def _least(self, job: Job, now_s: float) -> float:
        """Least utility it asks for now."""
        return job.spec.utility_min if self.postpones and not self._is_overdue(job, now_s) else 0.0

    def _start(self, draft: Draft, places: Places, job: Job) -> bool:
        place = places.best(job.spec, self._least(job, draft.now_s))
        if place is None:
            return self._join(draft, places, job)
        draft.start(job, place.loads, best_utility(draft, place))
        for part in place.everywhere:
            places.changed(part.node)
        return True

    def _join(self, draft: Draft, places: Places, job: Job) -> bool:
        """Start a job beside others, where that pays and nobody falls too low."""
        least = self._least(job, draft.now_s)
        company = best_company(draft, job.spec, least, self.company_max, self.weights) if self._shares else None
        if company is None:
            return False
        load, prediction = company.load, company.prediction
        draft.start(job, [load], share_reason(Why.SHARES, load, prediction, SPEEDUP_MIN))
        places.changed(draft.view.nodes[load.id.node])
        return True

    def _pass(self, draft: Draft, places: Places, walk: Walk, job: Job) -> bool:
        """Leave a job waiting; whether it was only postponed, so that others like it may still start."""
        if not places.refused.has_room:
            refuse_class(draft, job)
            walk.leave_class()
            return False
        self._refuse(draft, places, job)
        if self.max_postpone_s is not None:
            draft.ask_again(job.spec.pool, job.submit_s + self.max_postpone_s)
        return True

    def _refuse(self, draft: Draft, places: Places, job: Job) -> None:
        """Say why it waits, if somebody asks."""
        if draft.view.explain is None:
            return
        if places.refused.has_room:
            draft.wait(job.id, postponed(draft, places.refused, job.spec))
        else:
            refuse(draft, job)
