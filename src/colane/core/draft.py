"""A policy's working copy: it knows the effect of what has already been decided, and yields the plan.

Nothing of the state is copied but what is touched, so a draft costs what it decides.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge

from colane.core.free import FreeIndex, bits
from colane.core.load import Booking, GpuLoad, book
from colane.core.state import Kind, NodeState, SortKey
from colane.core.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.placement import Placement, Slot
from colane.model.plan import Action, Blocked, Plan, Start, Stop
from colane.model.reason import Reason

Cores = tuple[int, ...]


@dataclass(slots=True)
class _NodeLeft:
    """What a touched node has left."""

    cores_taken: set[int]
    host_memory_taken_bytes: int = 0
    host_bandwidth_taken: float = 0.0


def _books_host(spec: JobSpec) -> bool:
    """Whether a job books anything of its nodes besides GPUs."""
    return bool(spec.cores or spec.host_memory_bytes or spec.host_bandwidth_bytes_per_s)


class Draft:
    """Decisions so far, and the cluster as it will be once they are carried out."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.now_s = view.now_s
        self.beliefs = view.beliefs
        self.actions: list[Action] = []
        self.waits: dict[JobId, Reason] = {}
        self.class_waits: dict[NeedClass, Reason] = {}
        self.rest: dict[str, Reason] = {}
        self.again_s: dict[str, float] = {}
        self.blocked: dict[str, Blocked] = {}
        self.held: dict[GpuId, JobId] = {}
        self._loads: dict[GpuId, GpuLoad] = {}
        self._nodes: dict[str, _NodeLeft] = {}
        self._free: dict[Kind, FreeIndex] = {}
        self._free_masks: dict[tuple[int, str], int] = {}
        self._open: dict[tuple[Kind, int], list[SortKey]] = {}
        self._started: set[JobId] = set()

    # -- reading

    def load(self, gpu: GpuId) -> GpuLoad:
        """A GPU as it will be."""
        return self._loads.get(gpu) or self.view.gpu(gpu)

    def free(self, kind: Kind) -> FreeIndex:
        """Free GPUs of a kind as they will be."""
        return self._free.get(kind) or self.view.free(kind)

    def cores_free(self, node: NodeState) -> list[int]:
        """Cores of a node nobody will have booked, in order."""
        left = self._nodes.get(node.node.name)
        taken = left.cores_taken if left else ()
        return [core for core in node.node.cores if core not in node.cores_booked and core not in taken]

    def host_memory_free_bytes(self, node: NodeState) -> int:
        """Host memory of a node nobody will have booked."""
        left = self._nodes.get(node.node.name)
        return node.host_memory_free_bytes - (left.host_memory_taken_bytes if left else 0)

    def host_bandwidth_free(self, node: NodeState) -> float:
        """Bytes per second to host memory of a node nobody will have booked; infinite where that is not known."""
        left = self._nodes.get(node.node.name)
        return node.host_bandwidth_free - (left.host_bandwidth_taken if left else 0)

    def has_room(self, node: NodeState, spec: JobSpec, ranks: int | None = None) -> bool:
        """Whether a node has the cores, the host memory and its bandwidth that a job books there.

        For so many of its ranks, or for all.
        """
        if not _books_host(spec):
            return True
        ranks = spec.gpus if ranks is None else ranks
        if self.host_bandwidth_free(node) < spec.part(spec.host_bandwidth_bytes_per_s, ranks):
            return False
        if self.host_memory_free_bytes(node) < spec.part(spec.host_memory_bytes, ranks):
            return False
        return len(self.cores_free(node)) >= spec.part(spec.cores, ranks)

    def fits_alone(self, gpu: GpuLoad, spec: JobSpec) -> bool:
        """Whether a free GPU has the memory a job is believed to need; an unknown need fits any."""
        memory = self.beliefs.terms(spec, gpu.gpu.type).memory
        return memory is None or sum(memory) <= gpu.capacity_bytes

    def free_gpus(self, node: NodeState, gpu_type: str) -> Iterator[GpuLoad]:
        """Free GPUs of a type on a node, by index."""
        for number in bits(self._free_mask(node, gpu_type)):
            yield self.load(node.ids[number])

    def free_count(self, node: NodeState, gpu_type: str) -> int:
        """How many GPUs of a type a node will have free."""
        return self._free_mask(node, gpu_type).bit_count()

    def open_gpus(self, kind: Kind, jobs_max: int) -> Iterator[GpuLoad]:
        """GPUs of a kind with at most that many jobs that may be joined, as they will be, lightest first."""
        lists = [self._open_keys(kind, jobs) for jobs in range(1, jobs_max + 1)]
        for key in merge(*lists):
            yield self.load(key[3])

    def is_waiting(self, job: JobId) -> bool:
        """Whether nothing has been decided for it yet."""
        return job not in self._started

    # -- deciding

    def start(self, job: Job, gpus: Iterable[GpuLoad], reason: Reason, lanes: Sequence[int] | None = None) -> None:
        """Run a job on these GPUs, one a rank, in these lanes or else a new one on each, with the cores it books.

        GPUs of one node must follow one another; those of several nodes are for jobs that may span them.
        """
        loads = tuple(gpus)
        slots = tuple(map(Slot, [load.id for load in loads], lanes or [load.next_lane for load in loads]))
        placement = Placement(slots, *self._take(job.spec, loads))
        self._put([load.with_booking(self._booking(job, load, slot)) for load, slot in zip(loads, slots, strict=True)])
        self._started.add(job.id)
        self.actions.append(Start(job.id, placement, reason))

    def stop(self, job: Job, reason: Reason) -> None:
        """Take a running job off its GPUs; they are free once its process is gone, so not in this draft."""
        self.actions.append(Stop(job.id, reason))

    def hold(self, job: Job, gpus: Iterable[GpuLoad]) -> None:
        """Keep these GPUs of one node, free ones and others, for a waiting job: nobody else starts on them.

        Of the cores, the host memory and its bandwidth that it books, what is free on the node is kept as well.
        """
        loads = tuple(gpus)
        node = self.view.nodes[loads[0].id.node]
        for load in loads:
            self.held[load.id] = job.id
            mask = self._free_mask(node, load.gpu.type)
            if mask >> load.id.number & 1:
                self._set_free(node, (node.node.pool, load.gpu.type), mask ^ (1 << load.id.number))
        left = self._nodes.setdefault(node.node.name, _NodeLeft(set()))
        left.cores_taken.update(self.cores_free(node)[: job.spec.cores])
        left.host_memory_taken_bytes += min(job.spec.host_memory_bytes, self.host_memory_free_bytes(node))
        left.host_bandwidth_taken += min(job.spec.host_bandwidth_bytes_per_s, self.host_bandwidth_free(node))

    def ask_again(self, pool: str, at_s: float) -> None:
        """Ask the policy about a pool again then, or when one of its jobs is stopped or may be (see `Plan.again_s`).

        The earliest of several times counts; infinity waits for such a job only.
        """
        self.again_s[pool] = min(at_s, self.again_s.get(pool, at_s))

    def block(self, job: Job) -> None:
        """If the first in line, whom nobody may pass, lacks free GPUs: ask again only when that has changed."""
        spec = job.spec
        kinds = self.view.gpu_types(spec.pool, spec.gpu_type)
        if not spec.multi_node and all(self.free((spec.pool, kind)).most_free < spec.gpus for kind in kinds):
            self.blocked[spec.pool] = Blocked(job.id, spec.gpus, spec.gpu_type)

    def wait(self, job: JobId, reason: Reason) -> None:
        """This job stays in the queue."""
        self.waits[job] = reason

    def wait_class(self, spec: JobSpec, reason: Reason) -> None:
        """Every waiting job with the same needs stays in the queue."""
        self.class_waits[spec.need] = reason

    def wait_rest(self, pool: str, reason: Reason) -> None:
        """All others of a pool stay in the queue."""
        self.rest[pool] = reason

    def plan(self) -> Plan:
        """The plan."""
        actions = tuple(self.actions)
        return Plan(self.view.version, actions, self.waits, self.class_waits, self.rest, self.again_s, self.blocked)

    def _take(self, spec: JobSpec, loads: tuple[GpuLoad, ...]) -> tuple[Cores, tuple[tuple[str, Cores], ...]]:
        """Take what it books of each node by its ranks: cores of the first node, then of the others."""
        if not _books_host(spec):
            return (), ()
        taken = []
        for name in dict.fromkeys([load.id.node for load in loads]):
            here = [load for load in loads if load.id.node == name]
            cores = self._pick_cores(self.view.nodes[name], here, spec.part(spec.cores, len(here)))
            left = self._nodes.setdefault(name, _NodeLeft(set()))
            left.cores_taken.update(cores)
            left.host_memory_taken_bytes += spec.part(spec.host_memory_bytes, len(here))
            left.host_bandwidth_taken += spec.part(spec.host_bandwidth_bytes_per_s, len(here))
            taken.append((name, cores))
        return taken[0][1], tuple([(name, cores) for name, cores in taken[1:] if cores])

    def _pick_cores(self, node: NodeState, loads: Iterable[GpuLoad], count: int) -> Cores:
        """Cores near the GPUs first, then others, lowest ids first."""
        if not count:
            return ()
        near = {core for load in loads for core in load.gpu.cores}
        ranked = sorted(self.cores_free(node), key=lambda core: (core not in near, core))
        return tuple(sorted(ranked[:count]))

    def _booking(self, job: Job, load: GpuLoad, slot: Slot) -> Booking:
        return book(job, slot.lane, self.beliefs.terms(job.spec, load.gpu.type))

    def _put(self, loads: Iterable[GpuLoad]) -> None:
        """Take the new values of GPUs, each with one job more; what was free is taken out node by node."""
        taken: dict[tuple[str, str], int] = {}
        for load in loads:
            old = self.load(load.id)
            self._loads[load.id] = load
            if self._open:
                kind = (self.view.nodes[load.id.node].node.pool, load.gpu.type)
                _drop(self._open.get((kind, len(old.bookings))), old)
                _add(self._open.get((kind, len(load.bookings))), load)
            if old.is_free:
                site = (load.id.node, load.gpu.type)
                taken[site] = taken.get(site, 0) | 1 << load.id.number
        for (name, gpu_type), mask in taken.items():
            node = self.view.nodes[name]
            self._set_free(node, (node.node.pool, gpu_type), self._free_mask(node, gpu_type) & ~mask)

    def _open_keys(self, kind: Kind, jobs: int) -> list[SortKey]:
        """Made when first asked for, from the view's and what was touched before; kept true from then on."""
        keys = self._open.get((kind, jobs))
        if keys is None:
            keys = self._open[kind, jobs] = self.view.open_gpus(kind, jobs).copy()
            for load in self._loads.values():
                if (self.view.nodes[load.id.node].node.pool, load.gpu.type) == kind:
                    base = self.view.gpu(load.id)
                    _drop(keys if len(base.bookings) == jobs else None, base)
                    _add(keys if len(load.bookings) == jobs else None, load)
        return keys

    def _free_mask(self, node: NodeState, gpu_type: str) -> int:
        mask = self._free_masks.get((node.order, gpu_type))
        return node.free.get(gpu_type, 0) if mask is None else mask

    def _set_free(self, node: NodeState, kind: Kind, mask: int) -> None:
        self._free_masks[node.order, kind[1]] = mask
        if kind not in self._free:
            self._free[kind] = self.view.free(kind).copy()
        self._free[kind].set(node.order, mask.bit_count())


def _drop(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        del keys[bisect_left(keys, load.sort_key)]


def _add(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        insort(keys, load.sort_key)


class Walk:
    """Waiting jobs of a pool in an order given by class; a class that found no place is left as a whole.

    Args:
        draft: Where decisions are made.
        pool: Whose queue.
        key: Sort key of a class, smallest first; jobs of equal keys go by priority, then by arrival.
    """

    def __init__(self, draft: Draft, pool: str, key: dict[NeedClass, tuple[float, ...]]) -> None:
        self._draft = draft
        self._lines: list[tuple[NeedClass, Iterator[JobId]]] = []
        self._heap: list[tuple[int, tuple[float, ...], JobId, int]] = []
        self._current: tuple[int, tuple[float, ...], int] | None = None
        for (priority, need), line in draft.view.queue(pool).classes.items():
            self._lines.append((need, iter(line)))
            self._push(-priority, key.get(need, ()), len(self._lines) - 1)
        heapify(self._heap)

    def __iter__(self) -> Iterator[Job]:
        while True:
            if self._current is not None:
                self._push(*self._current)
                self._current = None
            if not self._heap:
                return
            priority, key, job, line = heappop(self._heap)
            self._current = (priority, key, line)
            yield self._draft.view.job(job)

    def leave_class(self) -> None:
        """Nobody else with the needs of the job last seen can be placed."""
        self._current = None

    def _push(self, priority: int, key: tuple[float, ...], line: int) -> None:
        job = next(self._lines[line][1], None)
        if job is not None:
            heappush(self._heap, (priority, key, job, line))
