"""Ageing: a job that has waited too long goes first, and room is kept for it, so that every wait is bounded.

Overdue jobs are served before the order begins, the oldest first, whatever their priority. The first that finds nothing
has GPUs kept for it on the node that comes nearest to having room: those that are free, and of the others as many as it
lacks are not joined any more. So as long as jobs end, it starts. For one without GPUs, cores and host memory are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.job_spec import is_among
from colane.model.resources import host_capacity, host_needs, ranks_held
from colane.scheduling.engine.contracts import GuardTally, SchedulingContext, waits_since_s
from colane.scheduling.engine.usual import UsualRule

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S

ID: Final = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Ageing:
    """A bound on waiting."""

    max_wait_s: float | None = HOUR_S  # a job that has waited longer is overdue; None never
    # so is one of several GPUs that has waited so many times what it has left and six hours, where the mean time to the
    # end is aimed at and none of a higher priority waits; None leaves it at that
    gang_wait_ratio: float | None = None

    def bind(self, context: SchedulingContext) -> AgeingRule | None:
        if self.max_wait_s is None:
            return None
        context.max_wait_s = self.max_wait_s
        gangs: Iterator[Job] | None = None
        if self.gang_wait_ratio is not None and context.queue.exchanges:
            context.gang_wait_ratio = self.gang_wait_ratio
            gangs = context.draft.view.derived(WaitingGangs).overdue(context)
        return AgeingRule(context, gangs) if gangs is not None or _may_be_overdue(context) else None


class AgeingRule(UsualRule):
    """`Ageing` for one plan."""

    def __init__(self, context: SchedulingContext, gangs: Iterator[Job] | None) -> None:
        self._context = context
        self._gangs = gangs or iter(())

    def urgent(self) -> Iterator[Job]:
        """Overdue jobs, the oldest first, until one finds nothing: room is kept for that one."""
        draft, cpu_only = self._context.draft, self._overdue_cpu_only()
        for job in chain(self._overdue(), self._gangs):
            if not draft.is_undecided(job.id):
                continue
            if cpu_only is not None and cpu_only.id < job.id:
                keep_host(draft, cpu_only)
                cpu_only = None
            yield job
            if draft.is_undecided(job.id) and job.id not in draft.waits:
                kept = keep_room(draft, job, self._context.least(job))
                if kept is not None:
                    watch = draft.view.derived(GuardTally).watch
                    if watch is not None:
                        watch.keeps(self._context, job)
                    self._context.changed(kept)
                    return
        if cpu_only is not None:
            keep_host(draft, cpu_only)

    def _overdue_cpu_only(self) -> Job | None:
        """The oldest overdue job without GPUs: it is placed after all that have some, but what it books is kept."""
        view, context = self._context.draft.view, self._context
        firsts = [line.first for line in view.queue(context.pool).cpu_only.values()]
        waiting = [view.job(first) for first in firsts if first is not None]
        return min([job for job in waiting if context.is_overdue(job)], key=ID, default=None)

    def _overdue(self) -> Iterator[Job]:
        context = self._context
        lines = context.draft.view.queue(context.pool).lines
        if len(lines) == 1:
            return self._overdue_of(*lines.values())
        return merge(*[self._overdue_of(line) for line in lines.values()], key=ID)

    def _overdue_of(self, line: Line) -> Iterator[Job]:
        """Those of one priority; a job that came later than the bound ago has not waited longer than that."""
        context, jobs = self._context, self._context.draft.view.jobs
        for job_id in line:
            job = jobs[job_id]
            if job.submit_s + context.max_wait_s > context.draft.now_s:
                return
            if context.is_overdue(job):
                yield job
            else:  # it waits anew, and will go before those behind it in line
                context.draft.plan_again(context.pool, context.overdue_s(job))
                context.draft.plan_after_moves(context.pool)  # it has run before: what moves now may leave it a place


def _may_be_overdue(context: SchedulingContext) -> bool:
    """Whether any job came longer ago than the bound: the first of its line has then, too."""
    view, now_s = context.draft.view, context.draft.now_s
    queue = view.queue(context.pool)
    for line in (*queue.lines.values(), *queue.cpu_only.values()) if queue.cpu_only else queue.lines.values():
        first = line.first
        if first is not None and view.jobs[first].submit_s + context.max_wait_s <= now_s:
            return True
    return False


class WaitingGangs(NodesMatterNot):
    """Waiting jobs of several GPUs, by when they are overdue; judged anew where what is believed of them has changed.

    By value a gang goes behind every shorter job of one GPU, and where it does not it finds as many GPUs at once only
    by chance. On 16 GPUs at a load of 1.25 one in ten of 8 GPUs and unknown length waited a week.
    """

    def __init__(self) -> None:
        self._pools: dict[str, _GangsDue] = {}

    def moved(self, old: Job | None, new: Job | None) -> None:
        if old is not None and _is_waiting_gang(old):
            self._pool(old).drop(old.id)
        if new is not None and _is_waiting_gang(new):
            self._pool(new).new[new.id] = None

    def overdue(self, context: SchedulingContext) -> Iterator[Job] | None:
        """Those that are, the first of them first, but none before one of a higher priority; None where there is none.

        A plan is asked for when the next one is.
        """
        gangs = self._pools.get(context.pool)
        return gangs.late(context) if gangs is not None and gangs.look(context) else None

    def _pool(self, job: Job) -> _GangsDue:
        return self._pools.setdefault(job.spec.pool, _GangsDue())


@dataclass(slots=True, eq=False)
class _Alike:
    """Gangs of one family of unknown length that never ran: each is overdue as long after it came."""

    key: tuple[str, JobId | None]  # of these; one that has run is with none
    jobs: list[tuple[float, JobId]] = field(default_factory=list)  # since when each waits
    bound_s: float = 0.0  # how long it may
    next: tuple[float, JobId] | None = None  # which is overdue next, and when

    def due_s(self, entry: tuple[float, JobId]) -> float:
        """When one is that waits since then."""
        return entry[0] + self.bound_s

    def late(self, now_s: float) -> Iterator[tuple[float, JobId]]:
        """Those that are."""
        for entry in self.jobs:
            if self.due_s(entry) > now_s:
                return
            yield self.due_s(entry), entry[1]


class _GangsDue:
    """Those of a pool: each of told length by itself, the others with those that are alike."""

    def __init__(self) -> None:
        self.new: dict[JobId, None] = {}
        self._due_s: dict[JobId, float] = {}
        self._alike: dict[tuple[str, JobId | None], _Alike] = {}
        self._among: dict[JobId, tuple[_Alike, float]] = {}
        self._changed: dict[_Alike, None] = {}
        self._next: list[tuple[float, JobId]] = []
        self._late: list[tuple[float, JobId]] = []
        self._late_alike: dict[_Alike, None] = {}
        self._believed = -1, -1

    def drop(self, job: JobId) -> None:
        """One does not any more."""
        self.new.pop(job, None)
        self._due_s.pop(job, None)
        among = self._among.pop(job, None)
        if among is not None:
            alike, since_s = among
            del alike.jobs[bisect_left(alike.jobs, (since_s, job))]
            self._changed[alike] = None

    def look(self, context: SchedulingContext) -> bool:
        """Whether any is overdue."""
        draft, ahead, late = context.draft, self._next, self._late
        self._believe(draft)
        self._take_in(context)
        while ahead and ahead[0][0] <= draft.now_s:
            entry = heappop(ahead)
            among, place = self._among.get(entry[1]), bisect_left(late, entry)
            if not self._holds(entry):
                continue
            if among is not None:
                self._judge(context, among[0])
            elif late[place : place + 1] != [entry]:
                late.insert(place, entry)
        while ahead and not self._holds(ahead[0]):
            heappop(ahead)
        if ahead:
            draft.plan_again(context.pool, ahead[0][0])
        if late and not self._holds(late[0]):
            self._late = [entry for entry in late if self._holds(entry)]
        return bool(self._late or self._late_alike)

    def _take_in(self, context: SchedulingContext) -> None:
        view = context.draft.view
        while new := view.portion(self.new):
            for job in [view.jobs[job_id] for job_id in new]:
                if context.queue.is_learnt(job):
                    self.drop(job.id)
                    key = job.effective.family, job.id if job.attempt else None
                    alike, since_s = self._alike.setdefault(key, _Alike(key)), waits_since_s(job)
                    insort(alike.jobs, (since_s, job.id))
                    self._among[job.id], self._changed[alike] = (alike, since_s), None
                elif self._due_s.get(job.id) != (at_s := context.overdue_s(job)):
                    self.drop(job.id)
                    self._due_s[job.id] = at_s
                    heappush(self._next, (at_s, job.id))
        for alike in self._changed:
            self._judge(context, alike)
        self._changed.clear()

    def _judge(self, context: SchedulingContext, alike: _Alike) -> None:
        """Find which of these are overdue, and when the next one is."""
        jobs, now_s = alike.jobs, context.draft.now_s
        self._late_alike.pop(alike, None)
        if not jobs:
            self._alike.pop(alike.key, None)
            return
        alike.bound_s = context.longest_wait_s(context.draft.view.jobs[jobs[0][1]])
        late = bisect_right(jobs, now_s, key=alike.due_s)
        if late:
            self._late_alike[alike] = None
        last, alike.next = alike.next, (alike.due_s(jobs[late]), jobs[late][1]) if late < len(jobs) else None
        if alike.next is not None and alike.next != last:
            heappush(self._next, alike.next)

    def late(self, context: SchedulingContext) -> Iterator[Job]:
        """Those that are."""
        jobs, highest = context.draft.view.jobs, max(context.draft.view.queue(context.pool).lines, default=0)
        for entry in merge(self._late, *[alike.late(context.draft.now_s) for alike in self._late_alike]):
            if self._holds(entry) and jobs[entry[1]].spec.priority >= highest:
                yield jobs[entry[1]]

    def _holds(self, entry: tuple[float, JobId]) -> bool:
        among = self._among.get(entry[1])
        return (self._due_s.get(entry[1]) if among is None else among[1] + among[0].bound_s) == entry[0]

    def _believe(self, draft: Draft) -> None:
        """Judge those anew of which something else is believed."""
        lengths = draft.beliefs.lengths
        believed = draft.beliefs.speeds_version, lengths.version
        if believed == self._believed:
            return
        if believed[0] != self._believed[0]:
            self.new.update(dict.fromkeys([*self._due_s, *self._among]))
        families = lengths.judged_since(self._believed[1])
        judged = [alike for alike in self._alike.values() if families is None or alike.key[0] in families]
        self._changed.update(dict.fromkeys(judged))
        self._believed = believed


def _is_waiting_gang(job: Job) -> bool:
    spec = job.effective
    return job.is_waiting and spec.gpus > 1 and not spec.sizes and spec.measurement_group is None


# -- room that is kept for one that has waited too long


KINDS_MAX = 256  # kinds of needs that are remembered at once


class Able(NamedTuple):
    """Nodes that are large enough."""

    nodes: int  # one bit for each order number
    ranks: dict[int, int]  # how many ranks each of them could hold, by order number


class EmptyNodes:
    """What nodes could hold if they were empty, as far as it was asked for; kept from one plan to the next."""

    def __init__(self) -> None:
        self._known: dict[int, Node] = {}
        self._touched: set[int] = set()
        self._able: dict[tuple[object, ...], Able] = {}

    def touched(self, node: int) -> None:
        self._touched.add(node)

    def removed(self, node: int) -> None:
        self._touched.discard(node)
        self._known.pop(node, None)
        self._able.clear()

    def able(self, view: ClusterView, spec: JobSpec, gpu_type: str) -> Able:
        """How many ranks of a job each node of its pool could hold; those too small for it are left out."""
        self._look(view)
        key = (
            spec.pool, gpu_type, spec.gpus, spec.gpus_max, spec.multi_node, spec.gpus_per_node, spec.cores,
            spec.host_memory_bytes, spec.host_bandwidth_bytes_per_s, spec.gpu_memory_bytes, spec.nodes,
        )  # fmt: skip
        found = self._able.get(key)
        if found is None:
            if len(self._able) >= KINDS_MAX:
                self._able.clear()
            found = self._able[key] = _able(view, spec, gpu_type)
        return found

    def _look(self, view: ClusterView) -> None:
        """Forget everything once a node is not what it was; what it carries does not matter."""
        for order in self._touched:
            node = view.node_at(order).node
            if self._known.get(order) is not node:
                self._known[order] = node
                self._able.clear()
        self._touched.clear()


def _able(view: ClusterView, spec: JobSpec, gpu_type: str) -> Able:
    least = 1 if spec.multi_node else spec.gpus
    nodes, ranks = 0, dict[int, int]()
    for node in view.nodes.values():
        if node.node.pool == spec.pool:
            held = ranks_held(node.node, spec, gpu_type, usable_only=True)
            if held >= least:
                nodes |= 1 << node.order
                ranks[node.order] = held
    return Able(nodes, ranks)


# -- what empty nodes could hold


def keep_room(draft: Draft, job: Job, spec: JobSpec) -> list[GpuLoad] | None:
    """Keep other jobs off GPUs of the node that comes nearest to having room for a job; None: none ever has.

    That is the node with the most free GPUs among those that have enough at all, so free GPUs there become more until
    the job starts. For a job over several nodes, as many of those with the most free as it takes. Its needs are those
    at the smallest size it may have.

    Returns:
        The GPUs kept; none of those on which a job has just started: they are kept from the next plan on.
    """
    if job.home:
        return _keep(draft, job, spec, list(draft.homes(job)), spec.gpus) or None
    for gpu_type in draft.view.gpu_types_for(spec):
        kept, ranks = list[tuple[NodeState, int]](), 0
        able = draft.view.derived(EmptyNodes).able(draft.view, spec, gpu_type)
        for order in draft.free((spec.pool, gpu_type)).nodes_emptiest_first(able.nodes, spec.gpus):
            here = min(spec.gpus - ranks, able.ranks[order])
            kept.append((draft.view.node_at(order), here))
            ranks += here
            if ranks >= spec.gpus:
                return [gpu for node, count in kept for gpu in _hold(draft, job, spec, node, gpu_type, count)]
    return None


def keep_host(draft: Draft, job: Job) -> None:
    """Keep for a job without GPUs what it books, on the node that comes nearest to having room for it.

    That is the one with the most free cores, then host memory, of those that could ever hold it; where there are
    others with as much, the first. So what is free there becomes more until the job starts.
    """
    need = host_needs(job.effective, 0)
    able = [
        node for node in draft.view.nodes.values()
        if node.node.pool == job.spec.pool and node.node.takes_jobs and need <= host_capacity(node.node)
        and is_among(job.effective.nodes, node.node.name)
    ]  # fmt: skip
    free = [(draft.cpu_only_free(node), node) for node in able]
    ranked = [(min(has.cores, need.cores), has.host_memory_bytes, -node.order) for has, node in free]
    if ranked:
        draft.hold_host(job, free[ranked.index(max(ranked))][1])


def _hold(draft: Draft, job: Job, spec: JobSpec, node: NodeState, gpu_type: str, count: int) -> list[GpuLoad]:
    """Keep free GPUs of a node, of the others those with the fewest jobs; none on which a job has just started."""
    ids, held = node.ids, draft.held
    here = [ids[gpu.index] for gpu in node.node.gpus if gpu.type == gpu_type and gpu.healthy and node.node.takes_jobs]
    return _keep(draft, job, spec, [draft.load(gpu) for gpu in here if gpu not in held], count)


def _keep(draft: Draft, job: Job, spec: JobSpec, loads: list[GpuLoad], count: int) -> list[GpuLoad]:
    nearest = sorted(loads, key=lambda load: (not load.is_free, len(load.bookings), load.id))[:count]
    chosen = [load for load in nearest if load is draft.view.gpu(load.id)]
    if chosen:
        draft.hold(job, chosen, spec)
    return chosen
