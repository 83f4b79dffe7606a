"""Free GPUs for one job, which has them to itself: of one node, or of several where it may span them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.free import FreeIndex
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.engine.contracts import Candidate, Classes, ClassKey, Outlook, SchedulingContext
from colane.scheduling.engine.usual import BoundSourceDefaults, UsualSource
from colane.scheduling.mechanisms.topology.array_demand import SubArrays


class NodesBy(StrEnum):
    """Which node with enough free GPUs is taken, and which of its GPUs."""

    FIRST = "first"  # the first in order of registration; its lowest GPUs
    SOCKET = "socket"  # the first in order of registration; GPUs of its first sockets first
    FULLEST = "fullest"  # the one with the fewest free; GPUs of its fullest sockets first
    ARRAYS = "arrays"  # of the job's own sub-array (CODA: of 4 GPUs and more, or fewer), else borrowed; the fullest


Arrange = Callable[[list[GpuLoad]], list[GpuLoad]]  # puts the free GPUs of a node in the order in which they are taken


def by_socket(loads: list[GpuLoad]) -> list[GpuLoad]:
    """In order of sockets, those that others use last."""
    return sorted(loads, key=lambda load: (load.gpu.is_disturbed, load.gpu.socket, load.id))


def fullest_socket_first(loads: list[GpuLoad]) -> list[GpuLoad]:
    """Sockets with the fewest free GPUs first."""
    free = Counter(load.gpu.socket for load in loads)
    return sorted(loads, key=lambda load: (load.gpu.is_disturbed, free[load.gpu.socket], load.gpu.socket, load.id))


ARRANGE: dict[NodesBy, Arrange | None] = {
    NodesBy.FIRST: None,
    NodesBy.SOCKET: by_socket,
    NodesBy.FULLEST: fullest_socket_first,
    NodesBy.ARRAYS: None,
}


@dataclass(frozen=True, slots=True)
class Free(UsualSource):
    """Free GPUs of one node, or of several where the job may span them; those that others use, too, come last."""

    nodes: NodesBy = NodesBy.FIRST  # which node is taken
    # tried first, in this order; the pool's others follow by name. Where none are named, the type on which the job is
    # believed to be fastest goes first
    gpu_types: tuple[str, ...] = ()

    def bind(self, context: SchedulingContext) -> BoundFree | None:
        """Nothing comes free while a plan is made, so without free GPUs it is asked for reasons alone."""
        return BoundFree(self, context) if context.explains or any_free(context) else None


def any_free(context: SchedulingContext) -> bool:
    """Whether any GPU of the pool is free."""
    draft, pool = context.draft, context.pool
    found = False
    for kind in draft.view.gpu_types(pool):
        found = found or draft.free((pool, kind)).most_free > 0
    return found


class BoundFree(BoundSourceDefaults):
    """`Free` for one plan."""

    def __init__(self, source: Free, context: SchedulingContext) -> None:
        self._context = context
        self._draft = context.draft
        self._nodes = source.nodes
        self._arrange = ARRANGE[source.nodes]
        self._gpu_types = source.gpu_types
        self._arrays = SubArrays(context) if source.nodes is NodesBy.ARRAYS else None

    @property
    def outlook(self) -> Outlook:
        if self._arrays is not None:  # arrays are as large as those that wait ask for
            return Outlook.ALL
        return Outlook.NEWCOMERS if any_free(self._context) else Outlook.NONE

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        draft, types = self._draft, self._types(job, spec)
        if spec.fits_one_node:
            for kind in types:
                used_by_others: list[tuple[GpuLoad, ...]] = []
                for order in self._nodes_with(spec, kind):
                    node = draft.view.node_at(order)
                    gpus = on_node(draft, spec, kind, node, self._arrange)
                    if gpus is None:
                        continue
                    if node.is_disturbed and any(load.gpu.is_disturbed for load in gpus):
                        used_by_others.append(gpus)
                    else:
                        yield Candidate(gpus, self._reason(gpus))
                for gpus in used_by_others:
                    yield Candidate(gpus, self._reason(gpus))
        if spec.multi_node:
            spread = over_nodes(draft, spec, types)
            if spread is not None:
                yield Candidate(spread, self._reason(spread))

    def _nodes_with(self, spec: JobSpec, kind: str) -> Iterable[int]:
        """Order numbers of the nodes with enough free GPUs of a type."""
        index = self._draft.free((spec.pool, kind))
        if self._arrays is not None:
            return self._arrays.own_first(spec, index.nodes_fullest_first(spec.gpus))
        is_fullest = self._nodes is NodesBy.FULLEST
        return index.nodes_fullest_first(spec.gpus) if is_fullest else index.nodes_with(spec.gpus)

    def may_help(self, classes: Classes) -> Classes:
        """Classes for which there are enough free GPUs, on one node where they need that."""
        draft, pool = self._draft, self._context.pool
        most = {kind: draft.free((pool, kind)).most_free for kind in draft.view.gpu_types(pool)}
        anywhere, sizer = max(most.values(), default=0), self._context.sizer
        found: list[ClassKey] = []
        if anywhere:
            for key in classes:
                need = key[1]
                have = anywhere if need.gpu_type is None else most.get(need.gpu_type, 0)
                if need.home or need.multi_node or sizer.fewest(need) <= have:
                    found.append(key)
        return classes if len(found) == len(classes) else {key: classes[key] for key in found}

    def _types(self, job: Job, spec: JobSpec) -> list[str]:
        draft = self._draft
        types = draft.view.gpu_types_for(spec)
        preferred = self._context.queue.preferred
        if len(types) < 2 and preferred is None:
            return types
        if self._gpu_types:
            said = self._gpu_types
            return sorted(types, key=lambda kind: said.index(kind) if kind in said else len(said))
        roomy = [kind for kind in types if spec.multi_node or draft.free((spec.pool, kind)).most_free >= spec.gpus]
        return fastest_first(draft, spec, roomy) if preferred is None else preferred(job, spec, roomy)

    def _reason(self, gpus: tuple[GpuLoad, ...]) -> Reason:
        first, draft = gpus[0], self._draft
        if self._nodes is not NodesBy.FULLEST:
            return Reason(Why.FREE_GPU, {"gpu": str(first.id)})
        left = draft.free_count(draft.view.nodes[first.id.node], first.gpu.type) - len(gpus)
        return Reason(Why.BEST_FIT, {"gpu": str(first.id), "left": left})


# -- over several nodes


class NodeShare(NamedTuple):
    """What a job over several nodes has of one of them."""

    node: NodeState
    fitting: tuple[GpuLoad, ...]  # free GPUs of the node on which a rank may run
    ranks: int  # how many of these it takes


def over_nodes(draft: Draft, spec: JobSpec, types: Iterable[str]) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of one type on as few nodes as possible, those with the most free first; None when there are too few.

    Ranks that lie in groups get a node for each of these.
    """
    for gpu_type in types:
        found = shares_of(draft, spec, gpu_type)
        if found is not None:
            return tuple([load for share in found for load in share.fitting[: share.ranks]])
    return None


def shares_of(draft: Draft, spec: JobSpec, gpu_type: str) -> list[NodeShare] | None:
    """Nodes with the most free GPUs of a type first, as few as it takes; None when there are too few.

    Of each as many as it has cores and host memory for; a whole group where ranks lie in such.
    """
    found: list[NodeShare] = []
    left, index = spec.gpus, draft.free((spec.pool, gpu_type))
    for node in emptiest_first(draft, index):
        fitting = tuple(draft.free_gpus(node, gpu_type))
        if not draft.all_fit_alone(fitting, spec):
            fitting = tuple([load for load in fitting if draft.fits_alone(load, spec)])
        ranks = spec.ranks_of(min(left, len(fitting)))
        while ranks and not draft.has_room(node, spec, ranks):
            ranks = spec.ranks_of(ranks - 1)
        if ranks:
            found.append(NodeShare(node, fitting, ranks))
            left -= ranks
        if not left:
            return found
    return None


def emptiest_first(draft: Draft, index: FreeIndex) -> Iterator[NodeState]:
    """Nodes with free GPUs of a kind, those with the most first."""
    for free in range(index.most_free, 0, -1):
        for order in index.nodes_with_exactly(free):
            yield draft.view.node_at(order)


# -- on one node


def on_node(
    draft: Draft, spec: JobSpec, gpu_type: str, node: NodeState, arrange: Arrange | None = None
) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of a node for a job, lowest index first or as arranged; None when it lacks GPUs, memory, cores."""
    if not draft.has_room(node, spec):
        return None
    gpus: list[GpuLoad] = []
    memory = draft.beliefs.terms(spec, gpu_type).memory
    need_bytes = 0 if memory is None else sum(memory)
    for load in draft.free_gpus(node, gpu_type):
        if not need_bytes or need_bytes <= load.capacity_bytes:
            gpus.append(load)
            if arrange is None and len(gpus) == spec.gpus:
                break
    if len(gpus) < spec.gpus:
        return None
    return tuple(gpus if arrange is None else arrange(gpus)[: spec.gpus])


def first_fit(draft: Draft, spec: JobSpec) -> tuple[GpuLoad, ...] | None:
    """Free GPUs of the first node that has room, or of several where the job may span them; None: there are none."""
    types = draft.view.gpu_types_for(spec)
    if spec.fits_one_node:
        for kind in types:
            for order in draft.free((spec.pool, kind)).nodes_with(spec.gpus):
                gpus = on_node(draft, spec, kind, draft.view.node_at(order))
                if gpus is not None:
                    return gpus
    return over_nodes(draft, spec, types) if spec.multi_node else None
