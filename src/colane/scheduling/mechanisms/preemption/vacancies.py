"""Vacancies: GPUs that a waiting job could have once some come free, or others leave them.

On one node where that is possible, else on several for a job that may span them, and then all of its ranks find a GPU
or no job leaves. No job leaves where enough comes free; else those leave that are least valuable, until there is room.
A job that waits for a place of enough utility declines any other, so none is to leave for one that it would decline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobSpec
from colane.model.resources import host_needs
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.engine.contracts import Rank, SchedulingContext
from colane.scheduling.mechanisms.preemption.victims import NodeVictims, Pieces, Unit, VictimSurvey, amount_of
from colane.scheduling.mechanisms.topology.free import emptiest_first
from colane.scheduling.mechanisms.topology.utility_placer import best_emptied, least_utility, utility_over_nodes

Takers = AbstractSet[JobId | None] | None  # jobs for which what comes free may be kept to count

EVERY_JOB: Final = None  # whichever job GPUs that come free are kept for


class NodePart(NamedTuple):
    """GPUs of one node for a job, or for some of its ranks."""

    site: NodeVictims
    gpus: tuple[GpuLoad, ...]


class Vacancy(NamedTuple):
    """GPUs for a job, node by node, and the jobs that have to leave for them."""

    parts: tuple[NodePart, ...]
    units: tuple[Unit, ...] = ()

    @property
    def gpus(self) -> tuple[GpuLoad, ...]:
        """One a rank."""
        return tuple([gpu for part in self.parts for gpu in part.gpus])


class Vacancies:
    """The search for jobs to preempt, for one pool in one plan.

    Args:
        context: Where it is asked.
        survey: What comes free, and which jobs could leave.
        over_nodes: Whether also on several nodes.
        postpones: Whether a job is offered no place below the utility it asks for.
    """

    def __init__(self, context: SchedulingContext, survey: VictimSurvey, *, over_nodes: bool, postpones: bool) -> None:
        self._context = context
        self._survey = survey
        self._over_nodes = over_nodes
        self._postpones = postpones
        self._draft = context.draft

    def find(self, job: Job, spec: JobSpec, rank: Callable[[Job], Rank]) -> Vacancy | None:
        """The one with which fewest leave; one that waits parked goes on where it is."""
        may_be_one = spec.fits_one_node
        may_span = self._over_nodes and spec.multi_node and spec.gpus > 1 and not job.home
        found = self._on_coming(job, spec) if may_be_one else None
        if found is None and may_span:
            found = self._if_it_starts(job, spec, self._over_coming(job, spec))
        if found is None and may_be_one:
            found = self._by_leaving(job, spec, rank(job))
        if found is None and may_span:
            found = self._if_it_starts(job, spec, self._over_leaving(job, spec, rank(job)))
        return found

    def _kinds(self, job: Job, spec: JobSpec) -> list[str]:
        """GPU types for a job, best first."""
        draft, preferred = self._draft, self._context.queue.preferred
        types = draft.view.gpu_types_for(spec)
        return fastest_first(draft, spec, types) if preferred is None else preferred(job, spec, types)

    def _least_utility(self, job: Job) -> float:
        return least_utility(self._context, job) if self._postpones and not job.home else 0.0

    # -- on one node

    def _on_coming(self, job: Job, spec: JobSpec) -> Vacancy | None:
        """Where GPUs come free: where some were made free for this very job, then for none, then for jobs behind.

        Jobs before it have had their turn and hold theirs.
        """
        sites = [site for site in self._survey.open_nodes if self._without_leaving(site) >= spec.gpus]
        mine = [site for site in sites if job.id in site.cores]
        for candidates, takers in ((mine, EVERY_JOB), (sites, {None, job.id}), (sites, EVERY_JOB)):
            for site in candidates:
                gpus = self._gpus(site, job, spec, takers, ())
                if gpus is not None:
                    return Vacancy((NodePart(site, gpus),))
        return None

    def _by_leaving(self, job: Job, spec: JobSpec, rank: Rank) -> Vacancy | None:
        """The node on which the most valuable job to leave is least valuable, then the fewest GPUs are emptied.

        Of jobs of one rank those are least valuable that lose least: unsaved work, memory to move, their launch.
        """
        survey = self._survey
        best: tuple[Rank, int, int, Vacancy] | None = None
        for worst, order, site in reversed(survey.stoppable() if survey.may_displace(rank) else ()):
            if not survey.displaces(rank, worst) or (best is not None and (worst, -1) <= best[:2]):
                break
            if site.gpus + self._without_leaving(site) < spec.gpus:
                continue
            units = [unit for unit in survey.units(site) if survey.displaces(rank, unit.worth)]
            self._draft.looks += 1 + len(units) // 2  # to ask two whether they leave takes as long as one
            units = [unit for unit in units if survey.yields(job, rank, unit)]
            leaving = least_needed(units, partial(self._suffice, site, job, spec))
            gpus = self._gpus(site, job, spec, EVERY_JOB, leaving) if leaving else None
            if gpus is None:
                continue
            cost = min(unit.worth for unit in leaving), -sum(unit.emptied for unit in leaving), order
            if best is None or cost > best[:3]:
                best = (*cost, Vacancy((NodePart(site, gpus),), tuple(leaving)))
        return None if best is None else best[3]

    def _suffice(self, site: NodeVictims, job: Job, spec: JobSpec, leaving: Sequence[Unit]) -> bool:
        """Whether there is room on a node if these leave."""
        gpus_max = self._without_leaving(site) + sum([len(unit.gpus) for unit in leaving])
        return gpus_max >= spec.gpus and self._gpus(site, job, spec, EVERY_JOB, leaving) is not None

    def _gpus(
        self, site: NodeVictims, job: Job, spec: JobSpec, takers: Takers, units: Sequence[Unit]
    ) -> tuple[GpuLoad, ...] | None:
        """GPUs of one type for all of a job, if those of `units` and those kept for `takers` come free.

        The first of these; of a job that asks for a utility the best, if they are good enough for it.
        """
        if job.home and (job.placement is None or job.placement.node != site.node.node.name):
            return None
        if not self.has_host(site, job, spec, spec.gpus, takers, units):
            return None
        least = self._least_utility(job)
        for kind in self._kinds(job, spec):
            loads = self.loads(site, job, spec, kind, takers, units)
            if len(loads) >= spec.gpus:
                found = best_emptied(self._draft, site.node, spec, loads, least) if least else loads[: spec.gpus]
                if found is not None:
                    return tuple(found)
        return None

    # -- on several nodes

    def _if_it_starts(self, job: Job, spec: JobSpec, found: Vacancy | None) -> Vacancy | None:
        """Over several nodes there is one place to be had: that or none, if the job declines it."""
        least = self._least_utility(job)
        if found is None or not least:
            return found
        parts = [(part.site.node, part.gpus) for part in found.parts]
        return found if utility_over_nodes(self._draft, spec, parts) >= least else None

    def _over_coming(self, job: Job, spec: JobSpec) -> Vacancy | None:
        """Where GPUs come free, without any job leaving for it: where some were made free for it, else anywhere."""
        sites = self._survey.open_nodes
        mine = [site for site in sites if job.id in site.cores]
        for some in filter(None, (mine, sites)):
            for kind in self._kinds(job, spec):
                parts = self._tally(job, spec, kind, some).parts()
                if parts is not None:
                    return Vacancy(parts)
        return None

    def _over_leaving(self, job: Job, spec: JobSpec, rank: Rank) -> Vacancy | None:
        """Where the least valuable leave, on any nodes."""
        if not self._may_be_enough(spec, rank):
            return None
        for kind in self._kinds(job, spec):
            tally = self._tally(job, spec, kind, self._survey.open_nodes)
            leaving = least_needed(self._helping(job, kind, rank), tally.suffice)
            if leaving and tally.suffice(leaving):
                parts = tally.parts()
                if parts is not None:
                    return Vacancy(parts, tuple(leaving))
        return None

    def _helping(self, job: Job, kind: str, rank: Rank) -> Iterator[Unit]:
        """Jobs on GPUs of a type whose place it may take, least valuable first."""
        survey, load, seen = self._survey, self._draft.load, set[tuple[JobId, ...]]()
        for unit in survey.least_first(rank):
            if unit.jobs not in seen and any(load(gpu).gpu.type == kind for gpu in unit.gpus):
                seen.add(unit.jobs)
                self._draft.looks += 1
                if survey.yields(job, rank, unit):
                    yield unit

    def _may_be_enough(self, spec: JobSpec, rank: Rank) -> bool:
        """Whether as many GPUs as it asks for are free, come free, or belong to jobs whose place it may take."""
        draft, survey, pool = self._draft, self._survey, self._context.pool
        count = sum(self._without_leaving(site) for site in survey.open_nodes)
        for kind in draft.view.gpu_types_for(spec):
            count += draft.free((pool, kind)).count
        for worst, _, site in reversed(survey.stoppable() if survey.may_displace(rank) else ()):
            if count >= spec.gpus or not survey.displaces(rank, worst):
                break
            count += site.gpus
        return count >= spec.gpus

    def _tally(self, job: Job, spec: JobSpec, kind: str, sites: list[NodeVictims]) -> _Tally:
        """Of these nodes, and of as many others with free GPUs as it takes, the emptiest first."""
        draft, survey = self._draft, self._survey
        tally = _Tally(self, survey, job, spec, kind)
        for site in sites:
            tally.count(site)
        at_hand = tally.total
        for node in emptiest_first(draft, draft.free((self._context.pool, kind))):
            if tally.total - at_hand >= spec.gpus:
                break
            tally.count(survey.site(node.node.name))
        return tally

    # -- what a node has: what is free, what comes free, and what would if jobs left

    def _without_leaving(self, site: NodeVictims) -> int:
        """No more GPUs of a node than this are free or come free."""
        return len(site.coming) + sum(self._draft.free_count(site.node, kind) for kind in site.node.free)

    def has_host(
        self, site: NodeVictims, job: Job, spec: JobSpec, ranks: int, takers: Takers, units: Iterable[Unit]
    ) -> bool:
        """Whether a node would have the cores, the host memory and its bandwidth that so many ranks book."""
        draft, node, need = self._draft, site.node, host_needs(spec, ranks)
        if not job.home and not draft.may_use(node, spec):
            return False
        cores = len(draft.cores_free(node)) + amount_of(site.cores, takers)
        if cores + sum(u.cores for u in units) < need.cores:
            return False
        host_bytes = draft.host_memory_free_bytes(node) + amount_of(site.host_memory_bytes, takers)
        if not job.home and host_bytes + sum(u.host_memory_bytes for u in units) < need.host_memory_bytes:
            return False
        bandwidth = draft.host_bandwidth_free(node) + amount_of(site.host_bandwidth, takers)
        return bandwidth + sum(u.host_bandwidth for u in units) >= need.host_bandwidth_bytes_per_s

    def loads(
        self, site: NodeVictims, job: Job, spec: JobSpec, kind: str, takers: Takers, units: Iterable[Unit]
    ) -> list[GpuLoad]:
        """GPUs of a type that it fits on; a caller that asks for more takers gets the same ones first."""
        return [load for load in self._loads(site, job, kind, takers, units) if self._draft.fits_alone(load, spec)]

    def _loads(
        self, site: NodeVictims, job: Job, kind: str, takers: Takers, units: Iterable[Unit]
    ) -> Iterator[GpuLoad]:
        """Those made free for the job first, then free ones, then what is promised to none, then to others."""
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


def least_needed(units: Iterable[Unit], suffice: Callable[[Sequence[Unit]], bool]) -> list[Unit]:
    """Those that have to leave: the least valuable until they suffice, then the most valuable are spared first.

    Args:
        units: Jobs that may leave, least valuable first.
        suffice: Whether there is room if these leave.

    Returns:
        None of them where all together do not suffice.
    """
    leaving: list[Unit] = []
    for unit in units:
        leaving.append(unit)
        if suffice(leaving):
            break
    else:
        return []
    for unit in reversed(leaving[:-1]):  # without the last there was no room
        rest = [other for other in leaving if other is not unit]
        if suffice(rest):
            leaving = rest
    return leaving


class _Tally:
    """How many ranks of a job its nodes can be made to hold, on GPUs of one type."""

    def __init__(self, room: Vacancies, survey: VictimSurvey, job: Job, spec: JobSpec, kind: str) -> None:
        self._room = room
        self._survey = survey
        self._job = job
        self._spec = spec
        self._kind = kind
        self._sites: dict[str, NodeVictims] = {}
        self._ranks: dict[str, int] = {}
        self._leaving: dict[str, list[Unit]] = {}
        self._gone: dict[tuple[JobId, ...], Pieces] = {}
        self.total = 0

    def count(self, site: NodeVictims) -> None:
        """Count a node, anew if it is known."""
        name = site.node.node.name
        ranks = self._most(site, EVERY_JOB)
        self.total += ranks - self._ranks.get(name, 0)
        self._sites[name], self._ranks[name] = site, ranks

    def suffice(self, leaving: Sequence[Unit]) -> bool:
        """Whether all of its ranks find a GPU if these leave, on all their nodes: only what has changed is counted."""
        wanted = {unit.jobs: unit for unit in leaving}
        for jobs in [jobs for jobs in self._gone if jobs not in wanted]:
            for site, piece in self._gone.pop(jobs):
                self._leaving[site.node.node.name].remove(piece)
                self.count(site)
        for jobs, unit in wanted.items():
            if jobs not in self._gone:
                pieces = self._gone[jobs] = self._survey.everywhere(unit)
                for site, piece in pieces:
                    self._leaving.setdefault(site.node.node.name, []).append(piece)
                    self.count(site)
        return self.total >= self._spec.gpus

    def parts(self) -> tuple[NodePart, ...] | None:
        """What it takes of each node; None where that is not enough.

        What is free and what was freed for it goes first, then what is not kept, then what is kept for others:
        so it has the same GPUs in the next plan, whichever jobs leave for others meanwhile.
        """
        if self.total < self._spec.gpus:
            return None
        taken, left, mine = dict[str, int](), self._spec.gpus, {self._job.id}
        takers: Takers
        for takers in (mine, {None, *mine}, EVERY_JOB):
            most = {name: self._most(site, takers) for name, site in self._sites.items()}
            for _, _, _, name in sorted([self._place(name, ranks) for name, ranks in most.items()]):
                more = min(left, most[name] - taken.get(name, 0))
                if more > 0:
                    taken[name] = taken.get(name, 0) + more
                    left -= more
        sites = [(self._sites[name], ranks) for name, ranks in taken.items()]
        return tuple([NodePart(site, tuple(self._loads(site, EVERY_JOB)[:ranks])) for site, ranks in sites])

    def _place(self, name: str, ranks: int) -> tuple[bool, int, int, str]:
        """Nodes that are emptied for it go first, then those that hold most of its ranks."""
        site = self._sites[name]
        return not (self._leaving.get(name) or self._job.id in site.cores), -ranks, site.node.order, name

    def _most(self, site: NodeVictims, takers: Takers) -> int:
        """As many ranks as a node has GPUs, cores and host memory for, a whole group where it lies in such."""
        room, spec, leaving = self._room, self._spec, self._leaving.get(site.node.node.name, ())
        ranks = spec.ranks_of(len(self._loads(site, takers)))
        while ranks and not room.has_host(site, self._job, spec, ranks, takers, leaving):
            ranks = spec.ranks_of(ranks - 1)
        return ranks

    def _loads(self, site: NodeVictims, takers: Takers) -> list[GpuLoad]:
        leaving = self._leaving.get(site.node.node.name, ())
        return self._room.loads(site, self._job, self._spec, self._kind, takers, leaving)
