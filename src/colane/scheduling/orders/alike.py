"""Ranks of waiting jobs, worked out once of all that are alike: whenever something is learnt a queue is ranked anew."""

from __future__ import annotations

from collections.abc import Callable

from colane.model.job import Job
from colane.perf.estimates import LengthEstimates
from colane.scheduling.engine.contracts import Rank
from colane.scheduling.engine.live import Kept
from colane.scheduling.engine.times import Expected


def tells_nothing(job: Job) -> bool:
    """Whether it never ran and declares nothing of its length: all such jobs of a class have as much left."""
    spec = job.effective
    if job.attempt or job.totals.steps_kept or spec.steps_total is not None or spec.time_limit_s is not None:
        return False
    return spec.steps_limit is None and job.spec.steps_limit is None


class AlikeRanks:
    """What is left of waiting jobs, and their ranks by it.

    Of jobs that never started, of one class, priority and declared length, as much is left.

    Args:
        kept: What was worked out and holds.
        lengths: By which lengths are judged that are not told.
        rank: The rank of a job.
        expected: What a job has left.
        tells_each: Whether lengths of single jobs are believed that these do not declare: then none are alike.
    """

    def __init__(
        self, kept: Kept, lengths: LengthEstimates, rank: Callable[[Job], Rank], expected: Expected, tells_each: bool
    ) -> None:
        self._lengths = lengths
        self._known = kept.waiting
        self._rank = rank
        self._expected = expected
        self._tells_each = tells_each

    def of(self, job: Job) -> tuple[Rank, float]:
        """Rank, and seconds left."""
        if self._tells_each or job.attempt or job.totals.steps_kept:
            return self._rank(job), self._expected.rest_s(job)
        spec = job.effective
        asked = (
            spec.need, job.spec.priority, spec.steps_total, job.spec.steps_limit, spec.steps_limit, spec.time_limit_s
        )  # fmt: skip
        known = self._known.get(asked)
        if known is None or 0 <= known[0] != self._lengths.version_of(spec.family):
            judged = self._lengths.version_of(spec.family)
            found = self._rank(job), self._expected.rest_s(job)
            known = self._known[asked] = judged if self._expected.is_learnt(job) else -1, found
        return known[1]

    def rank(self, job: Job) -> Rank:
        """The rank alone."""
        return self.of(job)[0]
