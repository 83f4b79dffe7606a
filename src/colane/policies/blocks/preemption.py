"""Making room for a waiting job by stopping the least valuable running ones.

Only jobs that are preemptible and may be moved are stopped. Their GPUs are free once their processes are gone; until
then they are kept for the job they were stopped for, which the reason of the stop names. So a second look at the same
cluster stops nobody else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final, NamedTuple, final

from colane.core.draft import Draft
from colane.core.load import GpuLoad
from colane.core.queue import Line
from colane.core.state import NodeState
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.reason import Reason, Why
from colane.policies.blocks.refusals import behind, no_place
from colane.policies.blocks.serving import (
    ClassKey,
    Lines,
    Rank,
    Ranked,
    has_free,
    start_on_free,
    with_enough_free,
)
from colane.policies.blocks.standing import Standing

Place = Callable[[Draft, Job], bool]
"""Starts a job without stopping others, if there is a place for it."""


@final
@dataclass(init=False, slots=True)
class Rules:
    """What a preemptive policy decides; the rest is the same for all.

    Attributes:
        rank: Order of jobs, running and waiting ones alike.
        lines: Waiting jobs of a class in this order.
        displaces: Whether a waiting job of the first rank may take the place of a running one of the second. It must
            be false for equal ranks, and hold for every rank before the first if it holds for the first.
        quantum_s: A job may be stopped when it has run this long.
        because: Ends the sentence "stopped for job N: ...".
        until_s: Until when the order holds if nothing happens.
        turns_s: The same as far as one running job is concerned.
        place: How a job starts without stopping others.
        needs_free: Whether it only ever starts on free GPUs.
    """

    rank: Final[Callable[[Job], Rank]]
    lines: Final[Lines]
    displaces: Final[Callable[[Rank, Rank], bool]]
    quantum_s: Final[float]
    because: Final[str]
    until_s: Final[float]
    turns_s: Final[Callable[[Job], float] | None]
    place: Final[Place]
    needs_free: Final[bool]

    def __init__(  # noqa: PLR0913 - a record
        self,
        *,
        rank: Callable[[Job], Rank],
        lines: Lines,
        displaces: Callable[[Rank, Rank], bool],
        quantum_s: float,
        because: str,
        until_s: float = inf,
        turns_s: Callable[[Job], float] | None = None,
        place: Place = start_on_free,
        needs_free: bool = True,
    ) -> None:
        self.rank = rank
        self.lines = lines
        self.displaces = displaces
        self.quantum_s = quantum_s
        self.because = because
        self.until_s = until_s
        self.turns_s = turns_s
        self.place = place
        self.needs_free = needs_free


def serve(draft: Draft, pool: str, rules: Rules) -> None:
    """Serve a pool by rank: on free GPUs, else on GPUs that come free, else by stopping jobs of lower value."""
    draft.ask_again(pool, inf)
    room = Room(draft, pool, rules)
    classes = _hopeful(draft, pool, rules, room)
    jobs = Ranked(draft.view.jobs, [rules.lines(key, line) for key, line in classes.items()])
    for job in jobs:
        if rules.place(draft, job):
            continue
        stopping = room.make(job, jobs.rank)
        if stopping is not None:
            draft.wait(job.id, Reason(Why.MAKING_ROOM, {}, stopping))
            continue
        if draft.view.explain is not None:
            draft.wait_class(job.spec, refusal(draft, job.spec))
        elif rules.needs_free and not has_free(draft, pool) and not room.has_any_for(jobs.rank):
            return
        jobs.leave_class()


def _hopeful(draft: Draft, pool: str, rules: Rules, room: Room) -> Mapping[ClassKey, Line]:
    """Classes worth looking at: while nothing comes free and nobody may be stopped, those that fit what is free."""
    classes = draft.view.queue(pool).classes
    if draft.view.explain is not None or not rules.needs_free or not room.is_empty:
        return classes
    hopeful = with_enough_free(draft, pool)
    if len(hopeful) < len(classes):
        room.watch()
    return hopeful


def refusal(draft: Draft, spec: JobSpec) -> Reason:
    """Why a job finds no place; GPUs kept for another job are that job's."""
    reason = no_place(draft, spec)
    return behind(next(iter(draft.held.values()))) if draft.held and reason.why is not Why.NO_NODE else reason


EVERYBODY = None
"""Whomever GPUs that come free are kept for."""


class Unit(NamedTuple):
    """Jobs that can only leave together to free their GPUs; as valuable as the most valuable of them."""

    rank: Rank
    jobs: tuple[JobId, ...]
    gpus: tuple[GpuId, ...]
    cores: int
    host_memory_bytes: int
    host_bandwidth: int


class _Coming(NamedTuple):
    """A GPU whose jobs are being stopped, and the waiting job they were stopped for."""

    gpu: GpuId
    kept_for: JobId | None


@dataclass(slots=True, eq=False)
class Site:
    """A node: what comes free on it, and who could be stopped, least valuable first, once that is asked.

    `cores`, `host_memory_bytes` and `host_bandwidth` come with stopping jobs, by the job they are kept for; every such
    job has a key.
    `worst` is the last rank of those that may be stopped there, `gpus` are as many as they hold.
    """

    node: NodeState
    worst: Rank | None = None
    gpus: int = 0
    units: list[Unit] | None = None
    coming: list[_Coming] = field(default_factory=list)
    cores: dict[JobId | None, int] = field(default_factory=dict)
    host_memory_bytes: dict[JobId | None, int] = field(default_factory=dict)
    host_bandwidth: dict[JobId | None, int] = field(default_factory=dict)


class _Choice(NamedTuple):
    """GPUs for a job on a node, and whom to stop for them."""

    site: Site
    gpus: tuple[GpuLoad, ...]
    units: tuple[Unit, ...]


class Room:
    """What comes free and who could be stopped in a pool; found out when first needed."""

    def __init__(self, draft: Draft, pool: str, rules: Rules) -> None:
        self._draft = draft
        self._pool = pool
        self._rules = rules
        self._standing = draft.view.derived(Standing).pool(pool)
        self._has_looked = False
        self._sites: dict[str, Site] = {}
        self._open: list[Site] = []
        self._ranks: dict[JobId, Rank] = {}
        self._worst: Rank | None = None
        self._by_worst: list[tuple[Rank, int, Site]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing comes free and nobody may be stopped."""
        return not self._standing.going and not self._standing.has_ripe(self._draft.now_s, self._rules.quantum_s)

    def has_any_for(self, rank: Rank) -> bool:
        """Whether anything comes free, or anybody might be stopped for a job of this rank or one after it."""
        self._survey()
        return bool(self._open) or self._may_displace(rank)

    def _may_displace(self, rank: Rank) -> bool:
        return self._worst is not None and self._rules.displaces(rank, self._worst)

    def watch(self) -> None:
        """Somebody finds no place: ask again when somebody else may be stopped, or the order changes."""
        ask, rules, standing = partial(self._draft.ask_again, self._pool), self._rules, self._standing
        ask(standing.ripens_s(self._draft.now_s, rules.quantum_s))
        if not self.is_empty:
            ask(rules.until_s)
        if rules.turns_s is not None:
            for job in (*standing.going.values(), *self._ripe()):
                ask(rules.turns_s(job))

    def make(self, job: Job, rank: Rank) -> tuple[JobId, ...] | None:
        """Keep GPUs for a job that come free or are made to; the jobs it waits for, None when there is no way."""
        choice = self._on_coming(job) or self._by_stopping(job, rank)
        if choice is None:
            return None
        self._carry_out(job, choice)
        return self._holders(choice)

    # -- choosing

    def _on_coming(self, job: Job) -> _Choice | None:
        """Where GPUs come free: where some were stopped for this very job, then nobody's, then those of jobs behind.

        Jobs before it have had their turn and hold theirs.
        """
        self._survey()
        sites = self._open
        mine = [site for site in sites if job.id in site.cores]
        for candidates, takers in ((mine, EVERYBODY), (sites, {None, job.id}), (sites, EVERYBODY)):
            for site in candidates:
                gpus = self._gpus(site, job, takers, ())
                if gpus is not None:
                    return _Choice(site, gpus, ())
        return None

    def _by_stopping(self, job: Job, rank: Rank) -> _Choice | None:
        """The node on which the most valuable job to be stopped is least valuable, then the fewest GPUs are emptied."""
        best: tuple[Rank, int, int, _Choice] | None = None
        for worst, order, site in reversed(self._stoppable() if self._may_displace(rank) else ()):
            if not self._rules.displaces(rank, worst) or (best is not None and worst < best[0]):
                break
            if best is not None and worst == best[0] and best[1] == -1:
                break
            if site.gpus + self._without_stopping(site) < job.spec.gpus:
                continue
            choice = self._least(site, job, [u for u in self._units(site) if self._rules.displaces(rank, u.rank)])
            if choice is None:
                continue
            cost = min(unit.rank for unit in choice.units), -sum(len(unit.gpus) for unit in choice.units), order
            if best is None or cost > best[:3]:
                best = (*cost, choice)
        return None if best is None else best[3]

    def _least(self, site: Site, job: Job, units: list[Unit]) -> _Choice | None:
        """Stop the least valuable until there is room, then spare whoever need not go."""
        chosen: list[Unit] = []
        gpus_max = self._without_stopping(site)
        for unit in units:
            chosen.append(unit)
            gpus_max += len(unit.gpus)
            if gpus_max >= job.spec.gpus and self._gpus(site, job, EVERYBODY, chosen) is not None:
                break
        else:
            return None
        for unit in reversed(chosen[:-1]):
            rest = [other for other in chosen if other is not unit]
            if self._gpus(site, job, EVERYBODY, rest) is not None:
                chosen = rest
        gpus = self._gpus(site, job, EVERYBODY, chosen)
        return None if gpus is None else _Choice(site, gpus, tuple(chosen))

    def _without_stopping(self, site: Site) -> int:
        """No more GPUs of a node than this are free or come free."""
        return len(site.coming) + sum(self._draft.free_count(site.node, kind) for kind in site.node.free)

    def _gpus(
        self, site: Site, job: Job, takers: AbstractSet[JobId | None] | None, units: Iterable[Unit]
    ) -> tuple[GpuLoad, ...] | None:
        """GPUs of one type for a job, if those of `units` and those kept for `takers` come free."""
        draft, node, spec = self._draft, site.node, job.spec
        cores = len(draft.cores_free(node)) + _amount(site.cores, takers)
        host_bytes = draft.host_memory_free_bytes(node) + _amount(site.host_memory_bytes, takers)
        if cores + sum(u.cores for u in units) < spec.cores:
            return None
        if host_bytes + sum(u.host_memory_bytes for u in units) < spec.host_memory_bytes:
            return None
        bandwidth = draft.host_bandwidth_free(node) + _amount(site.host_bandwidth, takers)
        if bandwidth + sum(u.host_bandwidth for u in units) < spec.host_bandwidth_bytes_per_s:
            return None
        for kind in draft.view.gpu_types(self._pool, spec.gpu_type):
            loads = [load for load in self._loads(site, job, kind, takers, units) if draft.fits_alone(load, spec)]
            if len(loads) >= spec.gpus:
                return tuple(loads[: spec.gpus])
        return None

    def _loads(
        self, site: Site, job: Job, kind: str, takers: AbstractSet[JobId | None] | None, units: Iterable[Unit]
    ) -> Iterator[GpuLoad]:
        """Those made free for the job first, then free ones, then what nobody and what others were promised."""
        draft = self._draft
        made = [coming.gpu for coming in site.coming if coming.kept_for == job.id]
        made += [gpu for unit in units for gpu in unit.gpus]
        free = [load.id for load in draft.free_gpus(site.node, kind)]
        rest = [coming for coming in site.coming if coming.kept_for != job.id]
        rest = [coming for coming in rest if takers is None or coming.kept_for in takers]
        others = [coming.gpu for coming in sorted(rest, key=lambda coming: (coming.kept_for or 0, coming.gpu))]
        for gpu in (*sorted(made), *free, *others):
            load = draft.load(gpu)
            untouched = load is draft.view.gpu(gpu)
            kept = load.returning or gpu in draft.held
            if untouched and load.gpu.type == kind and load.gpu.healthy and not kept:
                yield load

    # -- deciding

    def _carry_out(self, job: Job, choice: _Choice) -> None:
        site = choice.site
        for unit in choice.units:
            self._units(site).remove(unit)
            for victim in map(self._draft.view.job, unit.jobs):
                self._draft.stop(victim, Reason(Why.PREEMPTED, {"because": self._rules.because}, (job.id,)))
            site.coming += [_Coming(gpu, job.id) for gpu in unit.gpus]
            _add(site.cores, job.id, unit.cores)
            _add(site.host_memory_bytes, job.id, unit.host_memory_bytes)
            _add(site.host_bandwidth, job.id, unit.host_bandwidth)
        free_cores = len(self._draft.cores_free(site.node))
        free_bytes = self._draft.host_memory_free_bytes(site.node)
        free_bandwidth = self._draft.host_bandwidth_free(site.node)
        self._draft.hold(job, choice.gpus)
        _take(site.cores, job.id, job.spec.cores - free_cores)
        _take(site.host_memory_bytes, job.id, job.spec.host_memory_bytes - free_bytes)
        _take(site.host_bandwidth, job.id, int(max(0.0, job.spec.host_bandwidth_bytes_per_s - free_bandwidth)))
        if choice.units:
            self._move(site)
        self._keep_open(site)

    def _move(self, site: Site) -> None:
        """Somebody is stopped on a node: find its place among those on which others may be."""
        entries, entry = self._stoppable(), self._entry(site)
        if entry is not None:
            del entries[bisect_left(entries, entry[:2], key=_place)]
        units = self._units(site)
        site.worst = units[0].rank if units else None
        entry = self._entry(site)
        if entry is not None:
            insort(entries, entry, key=_place)
        self._worst = entries[-1][0] if entries else None

    @staticmethod
    def _entry(site: Site) -> tuple[Rank, int, Site] | None:
        """Nodes in order of registration where ranks are equal, seen from the end."""
        return None if site.worst is None else (site.worst, -site.node.order, site)

    def _keep_open(self, site: Site) -> None:
        """Look at a node again only while something comes free, or is, that is not kept for anybody."""
        held = self._draft.held
        comes = any(coming.gpu not in held for coming in site.coming)
        is_open = comes or any(self._draft.free_count(site.node, kind) for kind in site.node.free)
        if site in self._open and not is_open:
            self._open.remove(site)
        elif is_open and site.cores and site not in self._open:
            self._open.append(site)
            self._open.sort(key=_order)

    def _holders(self, choice: _Choice) -> tuple[JobId, ...]:
        return tuple(sorted({job for load in choice.gpus for job in load.jobs}))

    # -- looking around

    def _survey(self) -> None:
        """Find where something comes free, and the last in rank of those who may be stopped."""
        if not self._has_looked:
            self._has_looked = True
            self.watch()
            self._note_going()
            self._open = sorted([site for site in self._sites.values() if site.cores], key=_order)
            self._ranks = {job.id: self._rules.rank(job) for job in self._ripe()}
            self._worst = max(self._ranks.values(), default=None)

    def _ripe(self) -> Iterator[Job]:
        """Jobs that may be stopped now."""
        jobs = self._draft.view.jobs
        return (jobs[job] for job in self._standing.ripe(self._draft.now_s, self._rules.quantum_s))

    def _stoppable(self) -> list[tuple[Rank, int, Site]]:
        """Nodes on which somebody may be stopped, by the last rank there."""
        if self._by_worst is None:
            jobs = self._draft.view.jobs
            for job, rank in self._ranks.items():
                placement = jobs[job].placement
                site = self._at(placement.node if placement else "")
                site.worst = rank if site.worst is None else max(site.worst, rank)
                site.gpus += len(placement.gpus) if placement else 0
            self._by_worst = sorted(filter(None, map(self._entry, self._sites.values())), key=_place)
        return self._by_worst

    def _note_going(self) -> None:
        jobs, nodes = self._draft.view.jobs, self._draft.view.nodes
        placements = [job.placement for job in self._standing.going.values() if job.placement]
        for name in dict.fromkeys(name for placement in placements for name in placement.nodes if name in nodes):
            here = [jobs[job] for job in nodes[name].jobs]
            going = {job.id for job in here if job.state is JobState.STOPPING}
            for job in here:
                if job.id in going:
                    self._add_coming(self._at(name), job, going)

    def _at(self, node: str) -> Site:
        site = self._sites.get(node)
        if site is None:
            site = self._sites[node] = Site(self._draft.view.nodes[node])
        return site

    def _units(self, site: Site) -> list[Unit]:
        """Who could be stopped on a node."""
        if site.units is None:
            jobs = self._draft.view.jobs
            here = [jobs[job] for job in site.node.jobs]
            going = {job.id for job in here if job.state is JobState.STOPPING}
            companies = {self._company(job) - going for job in here if job.id in self._ranks}
            units = [
                self._unit([jobs[job] for job in sorted(them)]) for them in companies if them <= self._ranks.keys()
            ]
            site.units = sorted(units, key=_least_first)
        return site.units

    def _company(self, job: Job) -> AbstractSet[JobId]:
        """All jobs on the GPUs of a job; only jobs of one GPU have company."""
        load = self._draft.view.gpu(job.gpus_held[0]) if job.gpus_held else None
        return frozenset(load.jobs) if load is not None else frozenset()

    def _add_coming(self, site: Site, job: Job, going: AbstractSet[JobId]) -> None:
        """What a job that is being stopped will leave; a GPU comes free if all its jobs are."""
        if job.placement is None:
            return
        kept_for, name = self._stopped_for(job), site.node.node.name
        here = job.placement.slots_on(name)
        _add(site.cores, kept_for, len(job.placement.cores_on(name)))
        _add(site.host_memory_bytes, kept_for, job.spec.part(job.spec.host_memory_bytes, len(here)))
        _add(site.host_bandwidth, kept_for, job.spec.part(job.spec.host_bandwidth_bytes_per_s, len(here)))
        for gpu in () if job.is_on_host else [slot.gpu for slot in here]:
            company = self._draft.view.gpu(gpu).jobs
            if company[0] == job.id and set(company) <= going:
                insort(site.coming, _Coming(gpu, kept_for), key=lambda coming: coming.gpu)

    def _unit(self, jobs: list[Job]) -> Unit:
        gpus = {gpu for job in jobs if job.placement for gpu in job.placement.gpus}
        return Unit(
            min(self._ranks[job.id] for job in jobs),
            tuple(job.id for job in jobs),
            tuple(sorted(gpus)),
            sum(len(job.placement.cores) for job in jobs if job.placement),
            sum(job.spec.host_memory_bytes for job in jobs),
            sum(job.spec.host_bandwidth_bytes_per_s for job in jobs),
        )

    def _stopped_for(self, job: Job) -> JobId | None:
        """The waiting job it was stopped for."""
        reason = job.story[-1].reason
        if reason.why is not Why.PREEMPTED:
            return None
        taker = self._draft.view.jobs.get(JobId(reason.jobs[0]))
        return taker.id if taker is not None and taker.is_waiting else None


def _order(site: Site) -> int:
    return site.node.order


def _place(entry: tuple[Rank, int, Site]) -> tuple[Rank, int]:
    return entry[:2]


def _least_first(unit: Unit) -> Rank:
    return (*(-value for value in unit.rank), -float(unit.jobs[-1]))


def _amount(amounts: dict[JobId | None, int], takers: AbstractSet[JobId | None] | None) -> int:
    return sum(amount for taker, amount in amounts.items() if takers is None or taker in takers)


def _add(amounts: dict[JobId | None, int], key: JobId | None, amount: int) -> None:
    amounts[key] = amounts.get(key, 0) + amount


def _take(amounts: dict[JobId | None, int], first: JobId, amount: int) -> None:
    """Take an amount, first of what is kept for a job, then of what is kept for nobody."""
    for key in (first, None, *amounts):
        part = min(max(0, amount), amounts.get(key, 0))
        amount -= part
        if part:
            amounts[key] -= part
