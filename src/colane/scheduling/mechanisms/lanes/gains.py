"""What all jobs of a GPU gain together by a newcomer: his speed less what the others lose."""

from __future__ import annotations

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad, book
from colane.core.cluster.situations import situation_beside, speed_lost
from colane.model.job import Job, JobId, JobSpec
from colane.perf.rate import RateSource


class Gains:
    """Gains in sums of speeds over those alone (`Rate.ratio`), remembered by company for one plan."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[object, float | None] = {}

    def of(self, job: Job, spec: JobSpec, load: GpuLoad, lane: int) -> float | None:
        """By a job of this size in that lane of a GPU; None where nothing is known of such company."""
        company = tuple([(booking.key, booking.lane, self._weight(booking.job)) for booking in load.bookings])
        asked = (spec.need, spec.weight, load.gpu.type, load.gpu.sharing, lane, company)
        if asked not in self._known:
            self._known[asked] = self._gain(job, spec, load, lane)
        return self._known[asked]

    def _gain(self, job: Job, spec: JobSpec, load: GpuLoad, lane: int) -> float | None:
        draft, beliefs = self._draft, self._draft.beliefs
        booking = book(job, lane, beliefs.terms(spec, load.gpu.type))
        own = beliefs.rate(spec, situation_beside(load, lane, draft.view.jobs))
        if own.source is RateSource.DEFAULT:
            return None
        return own.ratio - speed_lost(beliefs, load, booking, draft.view.jobs)

    def _weight(self, job: JobId) -> float:
        return self._draft.view.job(job).spec.weight
