"""Jobs without GPUs: each runs on the first node of its pool that has the cores and the host memory it books.

They do not compete for GPUs, so no policy has to know of them: they are placed after the policy was asked, those
of higher priority first, then by arrival. So that they never keep a job waiting for ever that needs more of a host, the
oldest such job that is overdue is left what it books: jobs that came after it do not take so much of a node that one
with GPUs could not run there once the jobs with GPUs have ended, and of the node with most cores free nothing that one
without lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.free import bits
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobSpec, NeedClass
from colane.model.job_spec import is_among
from colane.model.plan import Plan
from colane.model.reason import Reason, Why, nodes_drained
from colane.model.resources import Resources, cores_used, host_capacity, host_needs, ranks_held


class CpuOnlyRoom:
    """Nodes, by order number, that may have room for jobs of a class; those seen to have none wait for a change."""

    def __init__(self) -> None:
        self._all = 0
        self._maybe: dict[NeedClass, int] = {}

    def touched(self, node: int) -> None:
        bit = 1 << node
        self._all |= bit
        for need in self._maybe:
            self._maybe[need] |= bit

    def removed(self, node: int) -> None:
        bit = ~(1 << node)
        self._all &= bit
        for need in self._maybe:
            self._maybe[need] &= bit

    def nodes(self, need: NeedClass) -> int:
        """Those that may have room for jobs of a class: one bit each."""
        return self._maybe.setdefault(need, self._all)

    def none_on(self, node: int, need: NeedClass) -> None:
        """A node has no room for jobs of a class until it changes."""
        self._maybe[need] &= ~(1 << node)


class CpuOnlyJobs:
    """Starts the waiting jobs without GPUs for which there is room."""

    name = "cpu-only"

    def plan(self, view: ClusterView) -> Plan:
        """Starts of the jobs without GPUs that fit now."""
        draft = Draft(view)
        for pool in view.pools:
            classes = view.queue(pool).cpu_only
            if classes:
                CpuOnlyPlacer(draft, pool).place(classes)
        return draft.plan()


class CpuOnlyPlacer:
    """Places the jobs without GPUs of one pool in one plan; a policy may have another order of jobs and of nodes."""

    def __init__(self, draft: Draft, pool: str, *, in_order: bool = True) -> None:
        self._draft = draft
        self._pool = pool
        self._room = draft.view.derived(CpuOnlyRoom)
        self._overdue = _oldest_overdue(draft, pool, in_order=in_order)
        self._kept: str | None = None

    def place(self, classes: dict[tuple[int, NeedClass], Line]) -> None:
        """Serve all classes in one line; a class that finds no node is left as a whole."""
        draft, lines = self._draft, [(priority, iter(line)) for (priority, _), line in classes.items()]
        heads = [(-priority, next(line), number) for number, (priority, line) in enumerate(lines)]
        heapify(heads)
        while heads:
            order, job_id, number = heappop(heads)
            job = draft.view.job(job_id)
            node = self.node_for(job)
            if node is None:
                self._refuse(job)
                continue
            draft.start_on_node(job, node, Reason(Why.FREE_CORES, {"node": node.node.name}))
            following = next(lines[number][1], None)
            if following is not None:
                heappush(heads, (order, following, number))

    def node_for(self, job: Job) -> NodeState | None:
        """The first node that has room for a job and that it may take; None where there is none."""
        return next(self.nodes_for(job), None)

    def nodes_for(self, job: Job) -> Iterator[NodeState]:
        """All such nodes."""
        draft, spec = self._draft, job.effective
        for order in self.in_order(spec.need):
            node = draft.view.node_at(order)
            if node.node.pool != spec.pool or not draft.had_room(node, spec):
                self._room.none_on(order, spec.need)
            elif draft.has_room(node, spec) and self.may_take(node, job) and self._leaves_enough(node, job):
                yield node

    def in_order(self, need: NeedClass) -> Iterator[int]:
        """Nodes that may have room for jobs of a class, by order number, in the order in which they are asked."""
        return bits(self._room.nodes(need))

    def may_take(self, node: NodeState, job: Job) -> bool:
        """Whether a job may have what it books of a node that has room for it."""
        del node, job
        return True

    def _leaves_enough(self, node: NodeState, job: Job) -> bool:
        """Whether the overdue job could still run there once the jobs with GPUs have ended."""
        first = self._overdue
        if first is None or first.id >= job.id or first.spec.priority < job.spec.priority:
            return True
        if first.spec.whole_node and is_among(first.effective.nodes, node.node.name):
            return False
        if not first.effective.gpus:
            own, other = first.effective, job.effective
            cores, memory_bytes = cores_used(own) + cores_used(other), own.host_memory_bytes + other.host_memory_bytes
            both = replace(own, cores=cores, host_memory_bytes=memory_bytes)
            return node.node.name != self._kept_for(own) or self._draft.has_room(node, both)
        kinds = {gpu.type for gpu in node.node.gpus if first.spec.gpu_type in {None, gpu.type}}
        ranks = max([ranks_held(node.node, first.effective, kind) for kind in kinds], default=0)
        if not ranks or (ranks < first.effective.gpus and not first.spec.multi_node):
            return True
        taken = self._draft.cpu_only_taken(node) + host_needs(job.effective, 0) + host_needs(first.effective, ranks)
        return taken <= host_capacity(node.node)

    def _kept_for(self, first: JobSpec) -> str:
        """The node that an overdue job without GPUs gets: of those large enough that with most cores free."""
        if self._kept is None:
            nodes = [one for one in self._draft.view.nodes.values() if one.node.pool == first.pool]
            nodes = [one for one in nodes if one.node.takes_jobs and is_among(first.nodes, one.node.name)]
            able = [one for one in nodes if len(one.node.cores) >= cores_used(first)]
            found = max(able, key=lambda one: (self._draft.cores_unused(one), -one.order), default=None)
            self._kept = "" if found is None else found.node.name
        return self._kept

    def _refuse(self, job: Job) -> None:
        """Why it waits is worked out only when a user asks."""
        view = self._draft.view
        if view.explain is not None:
            self._draft.wait_class(job.effective, no_room(self._draft, job.effective, self._overdue))


def no_room(draft: Draft, spec: JobSpec, overdue: Job | None = None) -> Reason:
    """Why a job without GPUs finds no node: what it books, the most there is of it, and which jobs hold the rest."""
    nodes = [node for node in draft.view.nodes.values() if node.node.pool == spec.pool]
    if not nodes:
        return Reason(Why.NO_NODE, {"pool": spec.pool})
    names, nodes = [node.node.name for node in nodes], [node for node in nodes if node.node.takes_jobs]
    if not nodes:
        return nodes_drained(names)
    if spec.nodes or spec.whole_node:
        return not_on_these(draft, spec)
    free, unused = [draft.cpu_only_free(node) for node in nodes], [draft.cores_unused(node) for node in nodes]
    if overdue is not None and any(draft.has_room(node, spec) for node in nodes):
        return Reason(Why.BEHIND, {}, (overdue.id,))
    running = {job: draft.view.job(job).effective for node in nodes for job in node.jobs}
    holders = tuple(sorted([job for job, one in running.items() if _books_host(one) or not one.gpus]))
    facts = {
        "need": cores_used(spec),
        "need_bytes": spec.host_memory_bytes,
        "have": max([min(one.cores, more) if spec.cores else more for one, more in zip(free, unused, strict=True)]),
        "have_bytes": max(one.host_memory_bytes for one in free),
    }
    return Reason(Why.NO_ROOM_ON_HOST, facts, holders)


def not_on_these(draft: Draft, spec: JobSpec) -> Reason:
    """That the nodes a job names have no room for it, or that it has none to itself; and which jobs are there."""
    named = [node for node in draft.view.nodes.values() if node.node.pool == spec.pool]
    named = [node for node in named if is_among(spec.nodes, node.node.name)]
    holders = tuple(sorted({job for node in named for job in node.jobs}))
    kept = [
        (node.node.name, one.told)
        for node in draft.view.nodes.values()
        if node.node.pool == spec.pool and not is_among(spec.nodes, node.node.name)
        for one in node.node.reservations if one.to_s > draft.now_s and spec.user not in one.users
    ]  # fmt: skip
    if kept:
        nodes, by = (", ".join(dict.fromkeys(words)) for words in zip(*kept, strict=True))
        return Reason(Why.NODES_RESERVED, {"nodes": nodes, "by": by}, holders)
    words = f"{spec.nodes or 'any'}{', whole' * spec.whole_node}"
    return Reason(Why.NO_ROOM_ON_NODES, {"nodes": words}, holders)


def _books_host(spec: JobSpec) -> bool:
    return host_needs(spec, spec.gpus) != Resources()


def _oldest_overdue(draft: Draft, pool: str, *, in_order: bool) -> Job | None:
    """Of the waiting jobs with GPUs that book something of a host, the oldest, if it has waited too long.

    Where jobs without GPUs are served in the order in which they came, one of these that needs more than a core too.
    """
    found, queue = None, draft.view.queue(pool)
    for (_, need), line in (*queue.classes.items(), *(queue.cpu_only.items() if in_order else ())):
        books = need.cores > (not need.gpus) or need.host_memory_bytes or need.host_bandwidth_bytes_per_s
        books = books or need.whole_node
        if books and line.first is not None:
            found = line.first if found is None else min(found, line.first)
    if found is None:
        return None
    job = draft.view.job(found)
    return job if job.submit_s + draft.view.cpu_only_passes_s <= draft.now_s else None
