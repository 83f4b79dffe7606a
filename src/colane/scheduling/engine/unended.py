"""What jobs of unknown length have had that have not ended: evidence of how long those of their family run."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.untold import is_untold, may_be_untold
from colane.core.cluster.view import ClusterView
from colane.facts.ran import had_s
from colane.model.job import Job, JobId
from colane.perf.estimates import Unended
from colane.scheduling.engine.times import Expected

FAMILIES_MAX: Final = 32  # so many are judged anew at once

WORK_A_FAMILY: Final = 32  # to judge one takes as long as to look at so many jobs

LATE_S: Final = 1.0  # so much later at most it is seen that a job has had more


@dataclass(slots=True)
class _Counted:
    """A job as it was looked at last: as what it was counted, of which family; in bins below 0 not; and until when."""

    job: Job
    family: str
    as_one: Unended
    until_s: float


def expected_now(draft: Draft, pool: str) -> Expected:
    """What is left of jobs, those of unknown length included, by all that is known now."""
    if not draft.beliefs.tells_each:
        draft.view.derived(UnendedJobs).look(draft.view)
    return Expected(draft, pool)


class UnendedJobs(NodesMatterNot):
    """How much these have had, by family, in bins; looked at again once one has had so much that it is in the next."""

    def __init__(self) -> None:
        self._new: dict[JobId, Job] = {}
        self._seen: dict[JobId, _Counted] = {}
        self._counts: dict[str, dict[Unended, int]] = {}
        self._touched: dict[str, None] = {}
        self._crossings: list[tuple[float, JobId]] = []
        self._has_told = False

    def moved(self, old: Job | None, new: Job | None) -> None:
        if new is not None and may_be_untold(new) and (new.attempt > 0 or new.placement is not None):
            self._new[new.id] = new
        elif old is not None:
            self._new.pop(old.id, None)
            self._drop(old.id)

    def look(self, view: ClusterView) -> None:
        """Tell what is believed of lengths of all that has changed."""
        while new := view.portion(self._new):
            for job in new.values():
                self._count(view, job)
        while self._crossings and self._crossings[0][0] <= view.now_s:
            view.work(1)
            at_s, job_id = heappop(self._crossings)
            seen = self._seen.get(job_id)
            if seen is not None and seen.until_s == at_s:
                self._count(view, seen.job)
        while self._touched or not self._has_told:
            families = list(islice(self._touched, FAMILIES_MAX)) if self._has_told else list(self._counts)
            view.beliefs.lengths.see_unended(
                {family: self._counts.get(family, {}) for family in families}, are_all=not self._has_told
            )
            for family in families:
                self._touched.pop(family, None)
            self._has_told = True
            if self._touched and view.beliefs.lengths.version:  # these are judged by now
                view.work(WORK_A_FAMILY * len(families))

    def _count(self, view: ClusterView, job: Job) -> None:
        age, until_s, now_s = -1, inf, view.now_s
        if is_untold(job, view.progress(job.id)):
            had = had_s(job, now_s)
            age = view.beliefs.lengths.age_of(had)
            if (
                job.start_s is not None
                and job.placement is not None
                and not job.home
                and job.run.paused_since_s is None
            ):
                until_s = max(now_s + LATE_S, max(now_s, job.start_s) + view.beliefs.lengths.same_until_s(had) - had)
        family, seen = job.effective.family, self._seen.get(job.id)
        if until_s < inf and (seen is None or seen.until_s != until_s):
            heappush(self._crossings, (until_s, job.id))
        as_one = age, view.beliefs.lengths.halved_before_s(family, job.submit_s)
        if seen is not None and (seen.family, seen.as_one) == (family, as_one):
            seen.job, seen.until_s = job, until_s
            return
        self._drop(job.id)
        self._seen[job.id] = _Counted(job, family, as_one, until_s)
        self._change(family, as_one, 1)

    def _drop(self, job: JobId) -> None:
        seen = self._seen.pop(job, None)
        if seen is not None:
            self._change(seen.family, seen.as_one, -1)

    def _change(self, family: str, as_one: Unended, change: int) -> None:
        if as_one[0] < 0:
            return
        counts = self._counts.setdefault(family, {})
        left = counts.get(as_one, 0) + change
        if left:
            counts[as_one] = left
        else:
            del counts[as_one]
        if not counts:
            del self._counts[family]
        self._touched[family] = None
