"""In the place of one who goes behind in the order, beside the rest of his company: he is parked, or stopped.

Of several places the one of most value: by how much the sum of speeds rises by who comes, less what who leaves added to
it, by what their speeds weigh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from colane.core.load import GpuLoad
from colane.model.job import Job, JobId, JobSpec
from colane.model.reason import Reason, Why
from colane.policies.companies import (
    CompanyValues,
    fits_instead,
    is_untouched,
    made_for,
)
from colane.policies.indexes.live import LiveJobs
from colane.policies.means import cheapest, leaving_s, may_leave
from colane.policies.parts import Classes, Desk, Offer, Order, Rank
from colane.policies.usual import UsualFinder


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """In the place of one who goes behind in the order, beside the rest of his company."""

    company_max: int = 2
    rise_min: float = 0.0

    def bind(self, desk: Desk) -> PlaceFinder | None:
        """See `Source`."""
        return PlaceFinder(self, desk)

    def spares_s(self, order: Order) -> float:
        """See `Source`."""
        return order.quantum_s


class _Place(NamedTuple):
    """Whose place a job could take, and what that is worth."""

    value: float
    rank: Rank
    ratio: float
    load: GpuLoad
    victim: Job


class PlaceFinder(UsualFinder):
    """See `InPlaceOf`."""

    def __init__(self, source: InPlaceOf, desk: Desk) -> None:
        self._desk = desk
        self._draft = desk.draft
        self._rise_min = source.rise_min
        self._values = CompanyValues(desk.draft)
        self._live = desk.draft.view.derived(LiveJobs).pool(desk.pool)
        self._ranked: list[tuple[Rank, Job]] | None = None
        self._leaving: set[JobId] = set()
        desk.draft.ask_again(desk.pool, inf)
        desk.draft.ask_again(desk.pool, self._live.ripens_s(desk.draft.now_s, desk.queue.quantum_s))

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        if spec.gpus != 1 or job.home:
            return
        made = made_for(self._draft, self._live, job)
        if made is not None:
            yield Offer((made,), Reason(Why.MAKING_ROOM, {}, ()), waits_for=made.jobs, is_later=True)
            return
        best = max(self._places(job, spec), key=_value, default=None)
        offer = None if best is None else self._offer(job, best)
        if offer is not None:
            yield offer

    def worth(self, classes: Classes) -> Classes | None:
        """See `Finder`."""
        return classes if self._live.going or self._live.has_ripe(self._draft.now_s, self._desk.queue.quantum_s) else {}

    def has_hope(self, rank: Rank) -> bool:
        """See `Finder`."""
        ranked = self._victims()
        return bool(ranked) and self._desk.queue.displaces(rank, ranked[-1][0])

    def _victims(self) -> list[tuple[Rank, Job]]:
        """Jobs of one GPU that may be moved, first in rank first."""
        if self._ranked is None:
            draft, queue = self._draft, self._desk.queue
            jobs = [draft.view.job(job) for job in self._live.ripe(draft.now_s, queue.quantum_s)]
            mine = [job for job in jobs if len(job.gpus_held) == 1 and may_leave(draft.view, job)]
            self._ranked = sorted([(queue.rank(job), job) for job in mine], key=_rank_of)
        return self._ranked

    def _places(self, job: Job, spec: JobSpec) -> Iterator[_Place]:
        draft, queue, rank = self._draft, self._desk.queue, self._desk.queue.rank(job)
        types = draft.view.gpu_types(self._desk.pool, spec.gpu_type)
        for other_rank, victim in reversed(self._victims()):
            if not queue.displaces(rank, other_rank):
                break
            load = draft.load(victim.gpus_held[0])
            if victim.id in self._leaving or not is_untouched(draft, load) or load.gpu.type not in types:
                continue
            place = self._instead(job, spec, load, victim, other_rank)
            if place is not None:
                yield place

    def _instead(self, job: Job, spec: JobSpec, load: GpuLoad, victim: Job, rank: Rank) -> _Place | None:
        """What it is worth to come to a GPU that somebody leaves."""
        values, rest = self._values, load.without(victim.id)
        if not fits_instead(self._draft, spec, rest, victim):
            return None
        mine = values.booking(job, spec, rest)
        alone = values.total(load, rest.bookings)
        rise = values.total(load, (*rest.bookings, mine)) - alone
        if rise <= (self._rise_min if rest.bookings else 0.0) or values.hurts(spec, rest, rest.bookings, mine):
            return None
        weigh = self._desk.queue.weigh
        lost = (values.total(load, load.bookings) - alone) * weigh(victim) / weigh(job)
        return _Place(rise - lost, rank, values.rate(spec, load, rest.bookings).ratio, load, victim)

    def _offer(self, job: Job, place: _Place) -> Offer | None:
        queue = self._desk.queue
        action = cheapest(self._draft, place.victim, job.id, queue.because, 0, away_s=queue.left_s(job) or 0.0)
        if action is None:
            return None

        def accepted() -> None:
            self._leaving.add(place.victim.id)

        return Offer(
            (place.load,), Reason(Why.MAKING_ROOM, {}, (place.victim.id,)), room=(action,), waits_for=place.load.jobs,
            accepted=accepted, is_later=True, ratio=place.ratio, harm=place.ratio - place.value,
            cost_s=leaving_s(self._draft.view, place.victim, action),
        )  # fmt: skip


def _value(place: _Place) -> tuple[float, Rank]:
    return place.value, place.rank


def _rank_of(entry: tuple[Rank, Job]) -> tuple[Rank, JobId]:
    return entry[0], entry[1].id
