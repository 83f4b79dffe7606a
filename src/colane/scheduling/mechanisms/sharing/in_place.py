"""In the place of one who goes behind in the order, beside the rest of his company: he is parked, or stopped.

Of several places the one of most value: by how much the sum of speeds rises by who comes, less what who leaves added to
it, by what their speeds weigh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import cheapest, is_untouched, leaving_s, may_leave
from colane.model.job import Job, JobId, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.choices import urgent_value
from colane.scheduling.engine.contracts import Classes, Desk, Offer, Order, Rank
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.openings import Openings
from colane.scheduling.engine.usual import UsualFinder
from colane.scheduling.mechanisms.preemption.room_utility import best_emptied
from colane.scheduling.mechanisms.sharing.companies import COMPANY_MAX, CompanyValues
from colane.scheduling.mechanisms.sharing.companions import others
from colane.scheduling.mechanisms.sharing.company_places import fits_instead, made_for
from colane.scheduling.mechanisms.sharing.groups import Alike
from colane.scheduling.mechanisms.topology.connected import least_utility


@dataclass(frozen=True, slots=True)
class InPlaceOf:
    """In the place of one who goes behind in the order, beside the rest of his company."""

    company_max: int = COMPANY_MAX
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
    rise: float
    lost: float
    ratio: float
    load: GpuLoad
    victim: Job


class _AlikeVictims(NamedTuple):
    """Victims in the same place of GPUs that are alike, the last in rank first."""

    alike: Alike
    place: int
    victims: list[tuple[Rank, Job]]


class PlaceFinder(UsualFinder):
    """See `InPlaceOf`."""

    def __init__(self, source: InPlaceOf, desk: Desk) -> None:
        self._desk = desk
        self._draft = desk.draft
        self._rise_min = source.rise_min
        self._values = CompanyValues(desk.draft, desk.pool, source.company_max - 1, desk.queue)
        self._openings = Openings(desk.draft, desk.pool, desk.queue)
        self._live = desk.draft.view.derived(LiveJobs).pool(desk.pool)
        self._ranked: list[tuple[Rank, Job]] | None = None
        self._groups: list[_AlikeVictims] | None = None
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
        if best is None or (not is_urgent(job, best.victim) and self._openings.suffice(job, spec, (best.load,))):
            return
        offer = self._offer(job, best)
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

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        """See `Finder`."""
        self._values.look()

    def _alike(self) -> list[_AlikeVictims]:
        """Victims by what they are and in what company, in each group and of all groups the last in rank first."""
        if self._groups is None:
            groups: dict[tuple[Alike, int], _AlikeVictims] = {}
            for rank, victim in reversed(self._victims()):
                gpu = victim.gpus_held[0]
                alike = self._values.alike.of(gpu)
                if alike is not None:
                    place = self._draft.view.gpu(gpu).jobs.index(victim.id)
                    group = groups.get((alike, place))
                    if group is None:
                        group = groups[alike, place] = _AlikeVictims(alike, place, [])
                    group.victims.append((rank, victim))
            self._groups = list(groups.values())
        return self._groups

    def _places(self, job: Job, spec: JobSpec) -> Iterator[_Place]:
        """The last in rank of each group: of those alike his speed weighs least."""
        draft, queue, rank = self._draft, self._desk.queue, self._desk.queue.rank(job)
        types = draft.view.gpu_types(self._desk.pool, spec.gpu_type)
        for group in self._alike() if self.has_hope(rank) else ():
            if not queue.displaces(rank, group.victims[0][0]):
                break
            if group.alike.kind[1] in types:
                place = self._instead(job, spec, group, rank)
                if place is not None:
                    yield place

    def _instead(self, job: Job, spec: JobSpec, group: _AlikeVictims, rank: Rank) -> _Place | None:
        """What it is worth to come to a GPU that somebody of a group leaves."""
        alike, values, weigh = group.alike, self._values, self._desk.queue.weigh
        number, rest = values.number_any(job, spec, alike.kind[1]), others(alike.members, group.place)
        rise = values.rise(number, alike.site, rest)
        if rise <= (max(self._rise_min, values.dilution(alike.site, rest, number)) if rest else 0.0):
            return None  # nor would it come to them once the place is free
        for other_rank, victim in group.victims:
            if not self._desk.queue.displaces(rank, other_rank):
                return None
            load, urgent = self._draft.load(victim.gpus_held[0]), is_urgent(job, victim)
            if not is_untouched(self._draft, load) or not fits_instead(
                self._draft, spec, load.without(victim.id), victim
            ):
                continue
            if not rest and not self._starts_on(job, spec, load):
                continue
            if urgent or not self._is_bad(job, group, number, victim):
                lost = values.loss(alike, group.place) * weigh(victim) / weigh(job)
                value = urgent_value(rise, lost, 0.0, None) if urgent else rise - lost
                ratio = values.ratio(alike.site, number, rest)
                return _Place(value, other_rank, rise, lost, ratio, load, victim)
        return None

    def _starts_on(self, job: Job, spec: JobSpec, load: GpuLoad) -> bool:
        """Whether a job would not decline a GPU for its neighbours, once it is empty."""
        least, node = least_utility(self._desk, job), self._draft.view.nodes[load.id.node]
        return not least or best_emptied(self._draft, node, spec, (load,), least) is not None

    def _is_bad(self, job: Job, group: _AlikeVictims, number: int, victim: Job) -> bool:
        """Whether the victim would be bound for too long, or the job and those who stay to each other."""
        alike, values, rest = group.alike, self._values, others(group.alike.members, group.place)
        if values.waits.spares(victim, job, values.ratio(alike.site, number, rest)):
            return True
        load = self._draft.load(victim.gpus_held[0]).without(victim.id)
        return bool(rest) and values.is_declined(load, alike.site, rest, number, job)

    def _offer(self, job: Job, place: _Place) -> Offer | None:
        queue = self._desk.queue
        left_s = queue.left_s(job)
        action = cheapest(self._draft, place.victim, job.id, queue.because, 0, away_s=left_s or 0.0)
        if action is None:
            return None
        value, cost_s = place.value, leaving_s(self._draft.view, place.victim, action)
        if is_urgent(job, place.victim):
            value, cost_s = urgent_value(place.rise, place.lost, cost_s, left_s), 0.0
        return Offer(
            (place.load,), Reason(Why.MAKING_ROOM, {}, (place.victim.id,)), room=(action,), waits_for=place.load.jobs,
            is_later=True, ratio=place.ratio, harm=place.ratio - value, cost_s=cost_s,
        )  # fmt: skip


def is_urgent(job: Job, victim: Job) -> bool:
    """Whether a job's place is asked for by one of higher priority: nobody weighs then whether that pays."""
    return job.spec.priority > victim.spec.priority


def _value(place: _Place) -> tuple[float, Rank]:
    return place.value, place.rank


def _rank_of(entry: tuple[Rank, Job]) -> tuple[Rank, JobId]:
    return entry[0], entry[1].id
