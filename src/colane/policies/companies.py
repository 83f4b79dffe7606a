"""What company is worth: the sum of the speeds of those who share a GPU (Gavel's normalised throughput)."""

from __future__ import annotations

from collections.abc import Sequence

from colane.core.draft import Draft
from colane.core.load import Booking, GpuLoad, book
from colane.model.job import Job, JobSpec
from colane.model.profile import ProfileKey
from colane.perf.rate import Rate
from colane.perf.situation import Situation
from colane.policies.indexes.live import PoolJobs
from colane.policies.means import is_leaving

Kinds = tuple[str, tuple[ProfileKey, ...], int]
"""All that decides what company on a GPU is worth, and for whom there is room: sharing, kinds of jobs, memory left."""


def kinds_on(load: GpuLoad) -> Kinds:
    """Who is on a GPU; of GPUs that are alike in it one need be looked at."""
    return load.gpu.sharing, tuple([booking.key for booking in load.bookings]), load.left_bytes


class CompanyValues:
    """What companies are worth, remembered for one plan by what they are."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._totals: dict[tuple[str, str, tuple[ProfileKey, ...]], float] = {}

    def rate(self, spec: JobSpec, load: GpuLoad, others: Sequence[Booking]) -> Rate:
        """Of a job on a GPU, in a lane of its own beside these."""
        keys = tuple([booking.key for booking in others])
        return self._draft.beliefs.rate(spec, Situation(load.gpu.type, 1, None, load.gpu.sharing, keys))

    def total(self, load: GpuLoad, bookings: Sequence[Booking]) -> float:
        """Sum of the speeds of these jobs on a GPU."""
        if not bookings:
            return 0.0
        asked = (load.gpu.type, load.gpu.sharing, tuple([booking.key for booking in bookings]))
        total = self._totals.get(asked)
        if total is None:
            total = self._totals[asked] = self._work_out(load, bookings)
        return total

    def _work_out(self, load: GpuLoad, bookings: Sequence[Booking]) -> float:
        jobs, total = self._draft.view.jobs, 0.0
        for place, booking in enumerate(bookings):
            others = [*bookings[:place], *bookings[place + 1 :]]
            total += self.rate(jobs[booking.job].spec, load, others).ratio
        return total

    def booking(self, job: Job, spec: JobSpec, load: GpuLoad) -> Booking:
        """What a job would hold of a GPU, in a lane of its own."""
        return book(job, load.next_lane, self._draft.beliefs.terms(spec, load.gpu.type))

    def hurts(self, spec: JobSpec, load: GpuLoad, others: Sequence[Booking], mine: Booking) -> bool:
        """Whether a job or one of those it would join would fall below its own least speed."""
        for place, booking in enumerate(others):
            other = self._draft.view.jobs[booking.job].spec
            if other.utility_min:
                beside = [*others[:place], *others[place + 1 :], mine]
                if self.rate(other, load, beside).ratio < other.utility_min:
                    return True
        return spec.utility_min > 0 and self.rate(spec, load, others).ratio < spec.utility_min


def is_settled(draft: Draft, load: GpuLoad) -> bool:
    """Whether nobody is on his way off a GPU: who comes next there is settled then."""
    jobs = draft.view.jobs
    return not any(is_leaving(jobs[booking.job]) for booking in load.bookings)


def has_room_beside(draft: Draft, spec: JobSpec, load: GpuLoad, needed_bytes: int) -> bool:
    """Whether memory, cores and circles let a job come to a GPU as it is."""
    return needed_bytes <= load.left_bytes and may_join(draft, load, spec) and is_settled(draft, load)


def made_for(draft: Draft, live: PoolJobs, job: Job) -> GpuLoad | None:
    """The GPU that somebody leaves for a job of one GPU."""
    for other in live.going.values():
        if other.makes_room_for == job.id and len(other.gpus_held) == 1:
            load = draft.load(other.gpus_held[0])
            if load.id not in draft.held:
                return load
    return None


def is_untouched(draft: Draft, load: GpuLoad) -> bool:
    """Whether a GPU is as it was when the plan began, nobody is leaving it, and it is kept for nobody."""
    same = load is draft.view.gpu(load.id) and load.id not in draft.held
    return same and not load.returning and load.gpu.healthy and is_settled(draft, load)


def fits_instead(draft: Draft, spec: JobSpec, rest: GpuLoad, leaver: Job) -> bool:
    """Whether a job fits on a GPU beside those who stay, with the cores of who leaves."""
    terms, node = draft.beliefs.terms(spec, rest.gpu.type), draft.view.nodes[rest.id.node]
    if not rest.bookings:
        fits = draft.fits_alone(rest, spec)
    else:
        known = terms.memory is not None and terms.load is not None and sum(terms.memory) <= rest.left_bytes
        fits = known and spec.share and rest.is_open and rest.admits(spec.circle)
    cores = len(leaver.placement.cores) if leaver.placement is not None else 0
    return fits and draft.host_free(node).cores + cores >= spec.cores


def may_share(spec: JobSpec) -> bool:
    """Whether a job may have company at all."""
    return spec.share and spec.gpus == 1


def may_join(draft: Draft, load: GpuLoad, spec: JobSpec) -> bool:
    """Whether a job may come to a GPU, memory apart: it is kept for nobody, all may meet, its node has room."""
    if load.id in draft.held or not load.admits(spec.circle):
        return False
    return draft.has_room(draft.view.nodes[load.id.node], spec)
