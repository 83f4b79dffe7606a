"""What runs on the nodes of a pool: which GPUs come free, and which jobs could be stopped or parked for another.

GPUs of jobs that are being stopped or parked are kept for the job that was done for, which their records name. So a
second look at the same cluster stops no other job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from math import ceil, inf
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.view import ClusterView
from colane.core.planners.means import least_lost_s, may_leave
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId
from colane.scheduling.engine.contracts import Rank, SchedulingContext
from colane.scheduling.engine.live import LiveJobs, ran_since_s

VICTIMS_MAX: Final = 2048  # of more jobs that may be stopped those on every second, third, ... node are looked at

VICTIMS_SEEN_MAX: Final = 256  # the same where no more is looked at than what has changed


class Unit(NamedTuple):
    """Jobs that can only leave together to free their GPUs, and what a node gains by it.

    `worth` is that of the most valuable of them: its rank, then the less the more it loses by leaving. `emptied` are as
    many GPUs as all nodes gain: a job over several leaves them all.
    """

    worth: Rank
    jobs: tuple[JobId, ...]
    gpus: tuple[GpuId, ...]
    cores: int
    host_memory_bytes: int
    host_bandwidth: int
    emptied: int


class Coming(NamedTuple):
    """A GPU whose jobs are being stopped, and the waiting job they were stopped for."""

    gpu: GpuId
    kept_for: JobId | None


@dataclass(slots=True, eq=False)
class NodeVictims:
    """A node: what comes free on it, and which jobs could be stopped, least valuable first, once that is asked.

    `cores`, `host_memory_bytes` and `host_bandwidth` come with stopping jobs, by the job they are kept for; every such
    job has a key.
    `worst` is the least worth of those that may be stopped there, `gpus` are as many as they hold.
    """

    node: NodeState
    worst: Rank | None = None
    gpus: int = 0
    units: list[Unit] | None = None
    coming: list[Coming] = field(default_factory=list)
    cores: dict[JobId | None, int] = field(default_factory=dict)
    host_memory_bytes: dict[JobId | None, int] = field(default_factory=dict)
    host_bandwidth: dict[JobId | None, int] = field(default_factory=dict)


Pieces = list[tuple[NodeVictims, Unit]]  # jobs that leave together: what each of their nodes gains by it


class VictimSurvey:
    """Found out when first needed.

    Args:
        context: Where the pool is served.
        displaces: Whether a waiting job of the first rank may take the place of a running one of the second.
        over_nodes: Whether jobs over several nodes may be stopped as well.
        samples: Whether of very many jobs that may be stopped no more than some are looked at.
    """

    def __init__(
        self, context: SchedulingContext, displaces: Callable[[Rank, Rank], bool], *,
        over_nodes: bool = True, samples: bool = False,
    ) -> None:  # fmt: skip
        self._draft = context.draft
        self._pool = context.pool
        self._queue = context.queue
        self._displaces = displaces
        self._over_nodes = over_nodes
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._samples = samples and not context.explains
        self._news = context.draft.view.news(context.pool)
        self._has_looked = False
        self._sites: dict[str, NodeVictims] = {}
        self._open: list[NodeVictims] = []
        self._past_min_runtime: list[Job] = []
        self._ranks: list[Rank] = []
        self._last: Rank | None = None
        self._known_worths: dict[JobId, Rank] | None = None
        self._by_worst: list[tuple[Rank, int, NodeVictims]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing comes free and no job may be stopped."""
        return not self._live.going and not self._live.has_past_min_runtime(self._draft.now_s, self._queue.quantum_s)

    def may_displace(self, rank: Rank) -> bool:
        """Whether any job might be stopped for one of this rank or one after it."""
        return self._last is not None and self._displaces(rank, self._last)

    def displaces(self, waiting: Rank, running: Rank) -> bool:
        """Whether a waiting job of the first rank may take the place of a running one of the second worth."""
        return self._displaces(waiting, running[:-1])

    def yields(self, job: Job, rank: Rank, unit: Unit) -> bool:
        """Whether all of these leave for a job that goes before them; for one that is overdue all that may do."""
        jobs = self._draft.view.jobs
        if not self._draft.leave_for([jobs[victim] for victim in unit.jobs], job):
            return False
        victims = [] if rank[1:] and rank[-1] == -inf else [jobs[victim] for victim in unit.jobs]
        return all(one.spec.priority < job.spec.priority or self._queue.yields(job, one) for one in victims)

    def opens(self, gpu: GpuId) -> bool:
        """Whether more may be had of a GPU that changed: of no jobs, or of such as may be stopped or leave for none."""
        view, latest_s = self._draft.view, self._draft.now_s - self._queue.quantum_s
        here = [view.jobs[job] for job in view.gpus[gpu].jobs] if gpu in view.gpus else []
        if any(job.is_leaving for job in here):
            return any(job.is_leaving and job.preempted_for is None for job in here)
        return not here or any(job.is_movable and ran_since_s(job) <= latest_s for job in here)

    @property
    def open_nodes(self) -> list[NodeVictims]:
        """Nodes on which something comes free, or is, that is not kept for a job."""
        self._survey()
        return self._open

    def plan_again(self) -> None:
        """A job finds no place: plan again when another may be stopped, or the order changes."""
        ask, queue, live = partial(self._draft.plan_again, self._pool), self._queue, self._live
        ask(live.min_runtime_until_s(self._draft.now_s, queue.quantum_s))
        if not self.is_empty:
            ask(queue.until_s)
        if queue.turns_s is not None:
            for job in (*live.going.values(), *self._all_past_min_runtime()):
                ask(queue.turns_s(job))

    def stopped(self, node: NodeVictims) -> None:
        """A job is stopped on a node: find its place among those on which others may be."""
        entries, entry = self.stoppable(), self._entry(node)
        if entry is not None:
            del entries[bisect_left(entries, entry[:2], key=_place)]
        units = self.units(node)
        node.worst = units[0].worth if units else None
        entry = self._entry(node)
        if entry is not None:
            insort(entries, entry, key=_place)
        self._last = entries[-1][0][:-1] if entries else None

    @staticmethod
    def _entry(node: NodeVictims) -> tuple[Rank, int, NodeVictims] | None:
        """Nodes in order of registration where ranks are equal, seen from the end."""
        return None if node.worst is None else (node.worst, -node.node.order, node)

    def keep_open(self, node: NodeVictims) -> None:
        """Look at a node again only while something comes free, or is, that is not kept for a job."""
        held = self._draft.held
        comes = any(coming.gpu not in held for coming in node.coming)
        is_open = comes or any(self._draft.free_count(node.node, kind) for kind in node.node.free)
        if node in self._open and not is_open:
            self._open.remove(node)
        elif is_open and node.cores and node not in self._open:
            self._open.append(node)
            self._open.sort(key=_order)

    def _survey(self) -> None:
        """Find where something comes free, and the last in rank of the jobs that may be stopped."""
        if not self._has_looked:
            self._has_looked = True
            self._note_going()
            self._open = sorted([site for site in self._sites.values() if site.cores], key=_order)
            view = self._draft.view
            past_min_runtime = [
                job
                for job in self._seen()
                if may_leave(view, job) and (not _spans(job) or (self._over_nodes and _is_all_there(view, job)))
            ]
            ranks = self._queue.ranks_placed or partial(map, self._queue.rank)
            self._past_min_runtime, self._ranks = past_min_runtime, list(ranks(past_min_runtime))
            self._last = max(self._ranks, default=None)

    @property
    def _worths(self) -> dict[JobId, Rank]:
        """Of jobs that may be stopped, as in `Unit`; worked out once a job may take a place."""
        if self._known_worths is None:
            view, ranked = self._draft.view, zip(self._past_min_runtime, self._ranks, strict=True)
            self._known_worths = {job.id: (*rank, -least_lost_s(view, job)) for job, rank in ranked}
        return self._known_worths

    def _all_past_min_runtime(self) -> Iterator[Job]:
        """Jobs that may be stopped now."""
        jobs = self._draft.view.jobs
        return (jobs[job] for job in self._live.past_min_runtime(self._draft.now_s, self._queue.quantum_s))

    def _seen(self) -> Iterable[Job]:
        """Those of them that are looked at: where they are very many, those on nodes that changed and on others evenly.

        So they are in the order in which they began.
        """
        view, news = self._draft.view, self._news
        count = self._live.count_past_min_runtime(self._draft.now_s, self._queue.quantum_s)
        every = ceil(count / (VICTIMS_MAX if news is None else VICTIMS_SEEN_MAX))
        if every <= 1 or not self._samples:
            return self._all_past_min_runtime()
        changed = dict.fromkeys([gpu.node for gpu in news.gpus]) if news is not None else {}
        of_pool = [name for name, node in view.nodes.items() if node.node.pool == self._pool]
        nodes = {**changed, **dict.fromkeys(islice(of_pool, 0, None, every))}
        here = [job for name in nodes if name in view.nodes for job in view.nodes[name].jobs]
        movable, latest_s = self._live.movable, self._draft.now_s - self._queue.quantum_s
        past = sorted([(movable[job], job) for job in dict.fromkeys(here) if movable.get(job, inf) <= latest_s])
        return [view.jobs[job] for _, job in past]

    def stoppable(self) -> list[tuple[Rank, int, NodeVictims]]:
        """Nodes on which jobs may be stopped, by the last rank there."""
        if self._by_worst is None:
            jobs = self._draft.view.jobs
            for job, worth in self._worths.items():
                placement = jobs[job].placement
                for name in placement.nodes if placement else ():
                    site = self._sites.get(name) or self.site(name)
                    site.worst = worth if site.worst is None else max(site.worst, worth)
                    site.gpus += len(placement.slots_on(name)) if placement else 0
            self._by_worst = sorted(filter(None, map(self._entry, self._sites.values())), key=_place)
        return self._by_worst

    def _note_going(self) -> None:
        jobs, nodes = self._draft.view.jobs, self._draft.view.nodes
        placements = [job.placement for job in self._live.going.values() if job.placement]
        for name in dict.fromkeys(name for placement in placements for name in placement.nodes if name in nodes):
            here = [jobs[job] for job in nodes[name].jobs]
            going = {job.id for job in here if job.is_leaving}
            for job in here:
                if job.id in going:
                    self._add_coming(self.site(name), job, going)

    def site(self, node: str) -> NodeVictims:
        """A node of the pool."""
        site = self._sites.get(node)
        if site is None:
            site = self._sites[node] = NodeVictims(self._draft.view.nodes[node])
        return site

    def units(self, site: NodeVictims) -> list[Unit]:
        """Jobs that could be stopped on a node: one that any source has decided about leaves for no other."""
        if site.units is None:
            jobs = self._draft.view.jobs
            here = [jobs[job] for job in site.node.jobs]
            going = {job.id for job in here if job.is_leaving}
            sharing_values = {self._co_runners(job) - going for job in here if job.id in self._worths}
            name, known = site.node.node.name, self._worths.keys()
            units = [self._unit([jobs[job] for job in sorted(them)], name) for them in sharing_values if them <= known]
            site.units = sorted(units, key=_least_first)
        return [unit for unit in site.units if all(map(self._draft.is_undecided, unit.jobs))]

    def everywhere(self, unit: Unit) -> Pieces:
        """What each of their nodes gains if these leave."""
        placement = self._draft.view.jobs[unit.jobs[0]].placement
        sites = [self.site(name) for name in placement.nodes] if placement else []
        return [(site, piece) for site in sites for piece in self.units(site) if piece.jobs == unit.jobs]

    def least_first(self, rank: Rank) -> Iterator[Unit]:
        """Jobs whose place one of this rank may take, least valuable first; those on several nodes once for each."""
        ahead: list[tuple[Rank, int, Unit]] = []
        for worst, order, site in reversed(self.stoppable() if self.may_displace(rank) else ()):
            if not self.displaces(rank, worst):
                break
            while ahead and ahead[0][0] < _least_of(worst):
                yield heappop(ahead)[2]
            for unit in self.units(site):
                if self.displaces(rank, unit.worth):
                    heappush(ahead, (_least_first(unit), order, unit))
        while ahead:
            yield heappop(ahead)[2]

    def _co_runners(self, job: Job) -> AbstractSet[JobId]:
        """All jobs on the GPUs of a job; only jobs of one GPU have co-runners."""
        load = self._draft.view.gpu(job.gpus_held[0]) if job.gpus_held else None
        return frozenset(load.jobs) if load is not None else frozenset()

    def _add_coming(self, site: NodeVictims, job: Job, going: AbstractSet[JobId]) -> None:
        """What a job that is being stopped will leave; a GPU comes free if all its jobs are."""
        if job.placement is None:
            return
        kept_for, name = self._stopped_for(job), site.node.node.name
        here = job.placement.slots_on(name)
        add_to(site.cores, kept_for, len(job.placement.cores_on(name)))
        if not job.parked:  # its process keeps what it has of the host
            add_to(site.host_memory_bytes, kept_for, job.effective.part(job.spec.host_memory_bytes, len(here)))
        add_to(site.host_bandwidth, kept_for, job.effective.part(job.spec.host_bandwidth_bytes_per_s, len(here)))
        for gpu in () if job.is_on_host else [slot.gpu for slot in here]:
            co_runners = self._draft.view.gpu(gpu).jobs
            if co_runners[0] == job.id and set(co_runners) <= going:
                insort(site.coming, Coming(gpu, kept_for), key=lambda coming: coming.gpu)

    def _unit(self, jobs: list[Job], node: str) -> Unit:
        """What that node gains if these leave."""
        held = {gpu for job in jobs for gpu in job.gpus_held}
        here = [(job.effective, len(job.placement.slots_on(node))) for job in jobs if job.placement]
        return Unit(
            min(self._worths[job.id] for job in jobs),
            tuple(job.id for job in jobs),
            tuple(sorted(gpu for gpu in held if gpu.node == node)),
            sum(len(job.placement.cores_on(node)) for job in jobs if job.placement),
            sum(spec.part(spec.host_memory_bytes, ranks) for spec, ranks in here),
            sum(spec.part(spec.host_bandwidth_bytes_per_s, ranks) for spec, ranks in here),
            len(held),
        )

    def _stopped_for(self, job: Job) -> JobId | None:
        """The waiting job it was stopped for."""
        if job.preempted_for is None:
            return None
        taker = self._draft.view.jobs.get(job.preempted_for)
        return taker.id if taker is not None and taker.is_waiting else None


def _is_all_there(view: ClusterView, job: Job) -> bool:
    """Whether all nodes of a job are there: of one that has lost some the rest is being stopped."""
    return job.placement is None or all(name in view.nodes for name in job.placement.nodes)


def _spans(job: Job) -> bool:
    return job.placement is not None and len(job.placement.nodes) > 1


def _order(node: NodeVictims) -> int:
    return node.node.order


def _place(entry: tuple[Rank, int, NodeVictims]) -> tuple[Rank, int]:
    return entry[:2]


def _least_first(unit: Unit) -> Rank:
    return (*_least_of(unit.worth), -float(unit.jobs[-1]))


def _least_of(worth: Rank) -> Rank:
    """The smaller the less valuable."""
    return tuple([-value for value in worth])


def amount_of(amounts: dict[JobId | None, int], takers: AbstractSet[JobId | None] | None) -> int:
    """What is kept for these takers; for any job where they are None."""
    return sum(amount for taker, amount in amounts.items() if takers is None or taker in takers)


def add_to(amounts: dict[JobId | None, int], key: JobId | None, amount: int) -> None:
    """Keep so much more for a taker."""
    amounts[key] = amounts.get(key, 0) + amount


def take_from(amounts: dict[JobId | None, int], first: JobId, amount: int) -> None:
    """Take an amount, first of what is kept for a job, then of what is kept for none."""
    for key in (first, None, *amounts):
        part = min(max(0, amount), amounts.get(key, 0))
        amount -= part
        if part:
            amounts[key] -= part
