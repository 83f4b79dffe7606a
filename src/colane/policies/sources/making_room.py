"""Making room for a waiting job by taking the least valuable running ones off their GPUs.

Their GPUs are free once their processes are gone, or their memory is; until then they are kept for the job that was
done for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from colane.core.load import GpuLoad
from colane.core.situations import situation_in
from colane.model.job import Job, JobId, JobSpec
from colane.model.plan import Park, Stop
from colane.model.reason import Reason, Why
from colane.model.resources import host_needs
from colane.policies.choices import urgent_value
from colane.policies.indexes.live import Priorities
from colane.policies.means import cheapest, leaving_s
from colane.policies.openings import Openings
from colane.policies.orders.walks import by_priority
from colane.policies.parts import Classes, Desk, Offer, Order, Rank
from colane.policies.sources.tenants import (
    Coming,
    NodeTenants,
    TenantSurvey,
    Unit,
    add_to,
    amount_of,
    take_from,
)
from colane.policies.speeds import fastest_first
from colane.policies.usual import UsualFinder
from colane.policies.waiting import Waits


class MakesRoom(StrEnum):
    """Who takes whose place."""

    ORDER = "order"
    """Whoever goes before another in the order of the composition, by as much as the order demands."""
    PRIORITY = "priority"
    """Jobs of higher priority those of lower."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """See the module.

    Attributes:
        makes_room: Who takes whose place.
    """

    makes_room: MakesRoom = MakesRoom.ORDER

    def bind(self, desk: Desk) -> RoomFinder | None:
        """See `Source`."""
        if self.makes_room is MakesRoom.ORDER:
            return RoomFinder(desk, desk.queue.displaces, desk.queue.because)
        if self.makes_room is MakesRoom.PRIORITY and _may_outrank(desk):
            return RoomFinder(desk, by_priority, "it has a higher priority")
        return None

    def spares_s(self, order: Order) -> float:
        """See `Source`; the order's quantum, which holds among equals only where room is made by the order."""
        return order.quantum_s if self.makes_room is MakesRoom.ORDER else inf


def _may_outrank(desk: Desk) -> bool:
    """Whether somebody who waits has a higher priority than somebody who runs."""
    highest = max(desk.draft.view.queue(desk.pool).lines, default=None)
    lowest = desk.draft.view.derived(Priorities).lowest(desk.pool)
    return highest is not None and lowest is not None and highest > lowest


EVERYBODY = None
"""Whomever GPUs that come free are kept for."""

Takers = AbstractSet[JobId | None] | None


class _Vacancy(NamedTuple):
    """GPUs for a job on a node, and who has to leave for them."""

    site: NodeTenants
    gpus: tuple[GpuLoad, ...]
    units: tuple[Unit, ...]


class RoomFinder(UsualFinder):
    """See `MakingRoom`."""

    at_home = True

    def __init__(self, desk: Desk, displaces: Callable[[Rank, Rank], bool], because: str) -> None:
        self._desk = desk
        self._draft = desk.draft
        self._because = because
        self._waits = Waits(desk.draft, desk.pool, desk.queue)
        self._openings = Openings(desk.draft, desk.pool, desk.queue)
        self._survey = TenantSurvey(desk, displaces)
        desk.draft.ask_again(desk.pool, inf)

    @property
    def settles(self) -> bool:
        """While nothing comes free and nobody may be stopped."""
        return self._survey.is_empty

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        vacancy = self._on_coming(job, spec) or self._by_leaving(job, spec)
        if vacancy is not None:
            yield from self._offer(job, spec, vacancy)

    def worth(self, classes: Classes) -> Classes:
        """None while nothing comes free and nobody may be stopped."""
        return {} if self._survey.is_empty else classes

    def left_out(self) -> None:
        """See `Finder`."""
        self._survey.watch()

    def has_hope(self, rank: Rank) -> bool:
        """See `Finder`."""
        return self._survey.has_any_for(rank)

    # -- choosing

    def _on_coming(self, job: Job, spec: JobSpec) -> _Vacancy | None:
        """Where GPUs come free: where some were made free for this very job, then nobody's, then those of jobs behind.

        Jobs before it have had their turn and hold theirs.
        """
        sites = self._survey.open_nodes
        mine = [site for site in sites if job.id in site.cores]
        for candidates, takers in ((mine, EVERYBODY), (sites, {None, job.id}), (sites, EVERYBODY)):
            for site in candidates:
                gpus = self._gpus(site, job, spec, takers, ())
                if gpus is not None:
                    return _Vacancy(site, gpus, ())
        return None

    def _by_leaving(self, job: Job, spec: JobSpec) -> _Vacancy | None:
        """The node on which the most valuable job to leave is least valuable, then the fewest GPUs are emptied.

        Of jobs of one rank those are least valuable that lose least: unsaved work, memory to move, their launch.
        """
        survey, rank = self._survey, self._desk.queue.rank(job)
        best: tuple[Rank, int, int, _Vacancy] | None = None
        for worst, order, site in reversed(survey.stoppable() if survey.may_displace(rank) else ()):
            if not survey.displaces(rank, worst) or (best is not None and worst < best[0]):
                break
            if best is not None and worst == best[0] and best[1] == -1:
                break
            if site.gpus + self._without_leaving(site) < spec.gpus:
                continue
            vacancy = self._least(site, job, spec, [u for u in survey.units(site) if survey.displaces(rank, u.worth)])
            if vacancy is None:
                continue
            cost = min(unit.worth for unit in vacancy.units), -sum(len(unit.gpus) for unit in vacancy.units), order
            if best is None or cost > best[:3]:
                best = (*cost, vacancy)
        return None if best is None else best[3]

    def _least(self, site: NodeTenants, job: Job, spec: JobSpec, units: list[Unit]) -> _Vacancy | None:
        """Let the least valuable leave until there is room, then spare whoever need not go."""
        chosen: list[Unit] = []
        gpus_max = self._without_leaving(site)
        for unit in units:
            chosen.append(unit)
            gpus_max += len(unit.gpus)
            if gpus_max >= spec.gpus and self._gpus(site, job, spec, EVERYBODY, chosen) is not None:
                break
        else:
            return None
        for unit in reversed(chosen[:-1]):
            rest = [other for other in chosen if other is not unit]
            if self._gpus(site, job, spec, EVERYBODY, rest) is not None:
                chosen = rest
        gpus = self._gpus(site, job, spec, EVERYBODY, chosen)
        return None if gpus is None else _Vacancy(site, gpus, tuple(chosen))

    def _without_leaving(self, site: NodeTenants) -> int:
        """No more GPUs of a node than this are free or come free."""
        return len(site.coming) + sum(self._draft.free_count(site.node, kind) for kind in site.node.free)

    def _gpus(
        self, site: NodeTenants, job: Job, spec: JobSpec, takers: Takers, units: Iterable[Unit]
    ) -> tuple[GpuLoad, ...] | None:
        """GPUs of one type for a job, if those of `units` and those kept for `takers` come free."""
        draft, node, need = self._draft, site.node, host_needs(spec, spec.gpus)
        if job.home and (job.placement is None or job.placement.node != node.node.name):
            return None
        cores = len(draft.cores_free(node)) + amount_of(site.cores, takers)
        host_bytes = draft.host_memory_free_bytes(node) + amount_of(site.host_memory_bytes, takers)
        if cores + sum(u.cores for u in units) < need.cores:
            return None
        if not job.home and host_bytes + sum(u.host_memory_bytes for u in units) < need.host_memory_bytes:
            return None
        bandwidth = draft.host_bandwidth_free(node) + amount_of(site.host_bandwidth, takers)
        if bandwidth + sum(u.host_bandwidth for u in units) < need.host_bandwidth_bytes_per_s:
            return None
        types, preferred = draft.view.gpu_types(self._desk.pool, spec.gpu_type), self._desk.queue.preferred
        for kind in fastest_first(draft, spec, types) if preferred is None else preferred(job, spec, types):
            loads = [load for load in self._loads(site, job, kind, takers, units) if draft.fits_alone(load, spec)]
            if len(loads) >= spec.gpus:
                return tuple(loads[: spec.gpus])
        return None

    def _loads(
        self, site: NodeTenants, job: Job, kind: str, takers: Takers, units: Iterable[Unit]
    ) -> Iterator[GpuLoad]:
        """Those made free for the job first, then free ones, then what nobody and what others were promised."""
        draft = self._draft
        homes = {load.id for load in draft.homes(job)} if job.home else None
        made = [coming.gpu for coming in site.coming if coming.kept_for == job.id]
        made += [gpu for unit in units for gpu in unit.gpus]
        free = [load.id for load in draft.free_gpus(site.node, kind)]
        rest = [coming for coming in site.coming if coming.kept_for != job.id]
        rest = [coming for coming in rest if takers is None or coming.kept_for in takers]
        others = [coming.gpu for coming in sorted(rest, key=lambda coming: (coming.kept_for or 0, coming.gpu))]
        for gpu in (*sorted(made), *free, *others):
            load = draft.load(gpu)
            untouched = load is draft.view.gpu(gpu)
            kept = load.returning or gpu in draft.held or (homes is not None and gpu not in homes)
            usable = load.is_usable if homes is None else load.gpu.healthy
            if untouched and load.gpu.type == kind and usable and not kept:
                yield load

    # -- deciding

    def _offer(self, job: Job, spec: JobSpec, vacancy: _Vacancy) -> Iterator[Offer]:
        draft, site = self._draft, vacancy.site
        room = self._room(job, vacancy)
        if room is None or (room and self._would_wait(job, spec, vacancy.gpus, room)):
            return
        reason = Reason(Why.MAKING_ROOM, {}, tuple([action.job for action in room]))
        waits_for = tuple(sorted({other for load in vacancy.gpus for other in load.jobs}))
        lacks = host_needs(spec, spec.gpus) - draft.host_free(site.node)

        def accepted() -> None:
            """Note who leaves, and what of all that comes free the job takes besides what was free."""
            self._leave(job, vacancy)
            take_from(site.cores, job.id, lacks.cores)
            take_from(site.host_memory_bytes, job.id, lacks.host_memory_bytes)
            take_from(site.host_bandwidth, job.id, int(max(0.0, lacks.host_bandwidth_bytes_per_s)))
            if vacancy.units:
                self._survey.stopped(site)
            self._survey.keep_open(site)

        harm, cost_s = self._harm(job, room), self._cost_s(room)
        if max([draft.view.job(action.job).spec.priority for action in room], default=0) < job.spec.priority:
            harm, cost_s = 1.0 - urgent_value(1.0, harm, cost_s, self._desk.queue.left_s(job)), 0.0
        yield Offer(
            vacancy.gpus, reason, room=room, waits_for=waits_for, accepted=accepted, is_later=True,
            harm=harm, cost_s=cost_s,
        )  # fmt: skip

    def _would_wait(self, job: Job, spec: JobSpec, there: Sequence[GpuLoad], room: Iterable[Stop | Park]) -> bool:
        """Whether a job had better wait for a place than have those of its own priority leave."""
        if min([self._draft.view.job(action.job).spec.priority for action in room]) < job.spec.priority:
            return False
        return self._openings.suffice(job, spec, there)

    def _harm(self, job: Job, room: Iterable[Stop | Park]) -> float:
        """Speed of those who leave, by what it weighs beside the job's."""
        draft, weigh, lost = self._draft, self._desk.queue.weigh, 0.0
        for victim in [draft.view.job(action.job) for action in room]:
            here = situation_in(draft.view.gpu(victim.gpus_held[0]), victim.id, draft.view.jobs)
            lost += draft.beliefs.rate(victim.spec, here).ratio * weigh(victim) / weigh(job)
        return lost

    def _cost_s(self, room: Iterable[Stop | Park]) -> float:
        view = self._draft.view
        return max([leaving_s(view, view.job(action.job), action) for action in room], default=0.0)

    def _room(self, job: Job, vacancy: _Vacancy) -> tuple[Stop | Park, ...] | None:
        """How each leaves who has to; None where one cannot, as the host lacks memory for all of them."""
        draft, room, host_bytes = self._draft, list[Stop | Park](), 0
        away_s = self._desk.queue.left_s(job) or 0.0
        for unit in vacancy.units:
            for victim in map(draft.view.job, unit.jobs):
                action = cheapest(draft, victim, job.id, self._because, host_bytes, away_s)
                if action is None or (isinstance(action, Park) and self._waits.spares(victim, job)):
                    return None
                if isinstance(action, Park):
                    host_bytes += draft.view.bytes_to_move(victim)
                room.append(action)
        return tuple(room)

    def _leave(self, job: Job, vacancy: _Vacancy) -> None:
        site = vacancy.site
        for unit in vacancy.units:
            site.coming += [Coming(gpu, job.id) for gpu in unit.gpus]
            add_to(site.cores, job.id, unit.cores)
            add_to(site.host_memory_bytes, job.id, unit.host_memory_bytes)
            add_to(site.host_bandwidth, job.id, unit.host_bandwidth)
