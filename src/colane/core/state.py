"""`ClusterState`: the one mutable thing, owned by the core, indexed so that an event costs what it changes.

Live jobs only: a job that has ended leaves the state with the outcome that ends it. Every number here can be derived
from nodes and jobs, so nothing is lost when the process dies; `restore` does just that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeVar

from colane.core.derived import Derived
from colane.core.free import FreeIndex
from colane.core.load import Booking, GpuLoad, book
from colane.core.queue import PoolQueue
from colane.model.hardware import GpuId, Node
from colane.model.job import Job, JobId
from colane.model.placement import Placement
from colane.model.plan import Blocked
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs

Kind = tuple[str, str]
"""A pool and a GPU type: GPUs of one kind are interchangeable to a policy."""

SortKey = tuple[float, float, int, GpuId]


D = TypeVar("D", bound=Derived)


@dataclass(slots=True)
class NodeState:
    """A node with what is booked on it.

    Attributes:
        order: Its number in the indexes, in order of registration.
        generation: Version of the state in which its desired jobs last changed.
        free: Free GPUs by type, one bit for each index.
        ids: Its GPUs by index.
    """

    node: Node
    order: int
    generation: int
    jobs: dict[JobId, None] = field(default_factory=dict)
    cores_booked: set[int] = field(default_factory=set)
    host_memory_booked_bytes: int = 0
    host_bandwidth_booked: int = 0
    free: dict[str, int] = field(default_factory=dict)
    ids: dict[int, GpuId] = field(default_factory=dict)

    @property
    def cores_free(self) -> int:
        """Cores nobody has booked."""
        return len(self.node.cores) - len(self.cores_booked)

    @property
    def host_memory_free_bytes(self) -> int:
        """Host memory nobody has booked."""
        return self.node.host_memory_bytes - self.host_memory_booked_bytes

    @property
    def host_bandwidth_free(self) -> float:
        """Bytes per second to host memory nobody has booked; infinite where the node does not say what it has."""
        has = self.node.host_bandwidth_bytes_per_s
        return has - self.host_bandwidth_booked if has else inf


def _host_memory_bytes(job: Job, placement: Placement, node: str) -> int:
    """What a job books of one of its nodes, its GPU memory that lies there included."""
    return job.spec.part(job.spec.host_memory_bytes, len(placement.slots_on(node))) + (job.on_host_bytes or 0)


def _host_bandwidth(job: Job, placement: Placement, node: str) -> int:
    return job.spec.part(job.spec.host_bandwidth_bytes_per_s, len(placement.slots_on(node)))


class ClusterState:
    """Nodes, live jobs, bookings and beliefs, with their indexes."""

    def __init__(self, beliefs: Beliefs | None = None, version: int = 0) -> None:
        self.version = version
        self.beliefs = beliefs or Beliefs()
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[str, NodeState] = {}
        self.gpus: dict[GpuId, GpuLoad] = {}
        self.progress: dict[JobId, Progress] = {}
        self.queues: dict[str, PoolQueue] = {}
        self.free: dict[Kind, FreeIndex] = {}
        self.gpu_types: dict[str, list[str]] = {}
        self.by_order: dict[int, NodeState] = {}
        self.changed_pools: set[str] = set()
        self.keys_in_use: dict[ProfileKey, set[GpuId]] = {}
        self.companies = 0
        self.returning: dict[JobId, None] = {}
        self._open: dict[tuple[Kind, int], list[SortKey]] = {}
        self._derived: dict[Callable[[], Any], Derived] = {}
        self._told_of_jobs: list[Callable[[Job | None, Job | None], None]] = []
        self._order_next = 0

    @classmethod
    def restore(
        cls,
        nodes: Iterable[tuple[Node, int]],
        jobs: Iterable[Job],
        beliefs: Beliefs | None = None,
        version: int = 0,
    ) -> ClusterState:
        """Rebuild from records.

        Args:
            nodes: Nodes with their generations, in order of first registration.
            jobs: All live jobs.
            beliefs: Profiles and measured sets.
            version: Version the records were written at.
        """
        state = cls(beliefs, version)
        for node, generation in nodes:
            state.put_node(node)
            state.nodes[node.name].generation = generation
        for job in sorted(jobs, key=lambda job: job.id):
            state.put_job(job)
        return state

    # -- jobs

    def put_job(self, job: Job) -> None:
        """Take the new value of a job; queue and bookings follow its state."""
        old = self.jobs.get(job.id)
        if old is not None and old.is_returning and not job.is_returning:
            self._await_return(old, returning=False)
        self._leave(old)
        if job.has_ended:
            self.jobs.pop(job.id, None)
            self.progress.pop(job.id, None)
        else:
            self.jobs[job.id] = job
            self._enter(job)
        for moved in self._told_of_jobs:
            moved(old, None if job.has_ended else job)

    def _leave(self, old: Job | None) -> None:
        if old is None:
            return
        if old.is_waiting:
            self.companies -= old.spec.company is not None
            self.queues[old.spec.pool].remove(old.id, old.spec)
            self.changed_pools.add(old.spec.pool)

    def _enter(self, job: Job) -> None:
        if job.is_waiting:
            queue = self.queues.get(job.spec.pool)
            if queue is None:
                queue = self.queues[job.spec.pool] = PoolQueue()
            queue.add(job.id, job.spec)
            self.companies += job.spec.company is not None
            self.changed_pools.add(job.spec.pool)
        elif job.placement is not None:
            for name in job.placement.nodes:
                node = self.nodes.get(name)
                if node is not None and job.id not in node.jobs and name not in job.ended_on:
                    self._book(job, job.placement, node)
            if job.is_returning:
                self._await_return(job, returning=True)

    def _await_return(self, job: Job, *, returning: bool) -> None:
        """Keep others off the GPUs that a job's memory left, or let them on again."""
        gpus = job.placement.gpus if job.placement is not None else ()
        if returning:
            self.returning[job.id] = None
        else:
            self.returning.pop(job.id, None)
        self.set_loads([self.gpus[gpu].awaited_by(job.id, returning=returning) for gpu in gpus if gpu in self.gpus])
        self.changed_pools.add(job.spec.pool)

    def _book(self, job: Job, placement: Placement, node: NodeState) -> None:
        """Enter a placed job on one of its nodes and its GPUs there."""
        name = node.node.name
        node.jobs[job.id] = None
        node.cores_booked.update(placement.cores_on(name))
        if job.spec.host_memory_bytes or job.on_host_bytes:
            node.host_memory_booked_bytes += _host_memory_bytes(job, placement, name)
        if job.spec.host_bandwidth_bytes_per_s:
            node.host_bandwidth_booked += _host_bandwidth(job, placement, name)
        if job.on_host_bytes is None:
            self._book_gpus(job, placement, name)

    def _book_gpus(self, job: Job, placement: Placement, name: str) -> None:
        loads = [(self.gpus[slot.gpu], slot.lane) for slot in placement.slots_on(name)]
        self.set_loads([load.with_booking(self.booking(job, load.gpu.type, lane)) for load, lane in loads])

    def change_lane(self, gpu: GpuId, job: JobId, lane: int) -> None:
        """Book a job of one GPU in another lane of it."""
        load = self.gpus[gpu]
        bookings = tuple([replace(b, lane=lane) if b.job == job else b for b in load.bookings])
        self.set_loads([replace(load, bookings=bookings)])
        self.changed_pools.add(self.nodes[gpu.node].node.pool)

    def move_to_host(self, job: Job, memory_bytes: int) -> None:
        """Take a job of one node, not on the host so far, off its GPUs; so much of its memory lies on the host now."""
        if job.placement is not None:
            self.nodes[job.placement.node].host_memory_booked_bytes += memory_bytes
            self.set_loads([self.gpus[gpu].without(job.id) for gpu in job.placement.gpus])
            self.changed_pools.add(job.spec.pool)

    def move_to_gpus(self, job: Job, memory_bytes: int) -> None:
        """Book a job on its GPUs again that is not on the host any more, where so much of its memory has lain."""
        if job.placement is not None:
            self.nodes[job.placement.node].host_memory_booked_bytes -= memory_bytes
            self._book_gpus(job, job.placement, job.placement.node)
            self.changed_pools.add(job.spec.pool)

    def release(self, job: Job) -> None:
        """Take a job off its GPUs and its nodes, those that are still there."""
        for name in job.placement.nodes if job.placement is not None else ():
            self.release_from(job, name)

    def release_from(self, job: Job, name: str) -> None:
        """Take a job off one of its nodes and its GPUs there; nothing when it is not on it."""
        node, placement = self.nodes.get(name), job.placement
        if node is None or placement is None or job.id not in node.jobs:
            return
        del node.jobs[job.id]
        node.cores_booked.difference_update(placement.cores_on(name))
        if job.spec.host_memory_bytes or job.on_host_bytes:
            node.host_memory_booked_bytes -= _host_memory_bytes(job, placement, name)
        if job.spec.host_bandwidth_bytes_per_s:
            node.host_bandwidth_booked -= _host_bandwidth(job, placement, name)
        self.set_loads([self.gpus[slot.gpu].without(job.id) for slot in placement.slots_on(name)])
        self.changed_pools.add(node.node.pool)

    def booking(self, job: Job, gpu_type: str, lane: int) -> Booking:
        """What a job holds of a GPU of that type, by present beliefs."""
        return book(job, lane, self.beliefs.terms(job.spec, gpu_type))

    # -- nodes and GPUs

    def put_node(self, node: Node) -> None:
        """Add a node, or take its new description; its jobs stay."""
        known = self.nodes.get(node.name)
        if known is None:
            known = NodeState(node, self._order_next, self.version)
            self._order_next += 1
            self.nodes[node.name] = known
            self.by_order[known.order] = known
        else:
            self._forget_gpus(known)
            known.node = node
        self._enter_gpus(known)
        self._touch(known)
        self.changed_pools.add(node.pool)

    def remove_node(self, name: str) -> None:
        """Drop a node that carries no job any more."""
        node = self.nodes[name]
        self._forget_gpus(node)
        del self.nodes[name]
        del self.by_order[node.order]
        for index in self._derived.values():
            index.removed(node.order)

    def set_loads(self, loads: Iterable[GpuLoad]) -> None:
        """Take the new values of GPUs and keep every index true."""
        turned: dict[tuple[str, str], int] = {}
        for load in loads:
            old = self.gpus[load.id]
            self._unindex(old)
            self.gpus[load.id] = load
            self._index(load)
            if self._derived:
                self._touch(self.nodes[load.id.node])
            if old.is_free != load.is_free:
                site = (load.id.node, load.gpu.type)
                turned[site] = turned.get(site, 0) | 1 << load.id.number
        for (name, gpu_type), mask in turned.items():
            node = self.nodes[name]
            self._set_free(node, gpu_type, node.free[gpu_type] ^ mask)

    def refresh_bookings(self, key: ProfileKey) -> None:
        """Re-book the jobs of a family whose profile changed, by the new beliefs."""
        for gpu in sorted(self.keys_in_use.get(key, ())):
            load = self.gpus[gpu]
            if all(self._is_fresh(booking, load.gpu.type) for booking in load.bookings):
                continue
            fresh = (self.booking(self.jobs[b.job], load.gpu.type, b.lane) for b in load.bookings)
            self.set_loads([replace(load, bookings=tuple(fresh))])
            self.changed_pools.add(self.nodes[gpu.node].node.pool)

    def _is_fresh(self, booking: Booking, gpu_type: str) -> bool:
        """Whether a booking is what present beliefs say."""
        terms = self.beliefs.terms(self.jobs[booking.job].spec, gpu_type)
        return booking.memory == terms.memory and booking.load == terms.load

    def open_gpus(self, kind: Kind, jobs: int) -> list[SortKey]:
        """Sort keys of the GPUs of a kind with that many jobs that may be joined, lightest first.

        The list is made when first asked for and kept true from then on.
        """
        asked = (kind, jobs)
        if asked not in self._open:
            loads = (load for load in self.gpus.values() if len(load.bookings) == jobs and load.is_open)
            self._open[asked] = sorted(load.sort_key for load in loads if self.kind_of(load) == kind)
        return self._open[asked]

    def derived(self, make: Callable[[], D]) -> D:
        """A policy's own index, made when first asked for and told of every change of nodes (and jobs) from then on."""
        index: D | None = self._derived.get(make)  # type: ignore[assignment]
        if index is None:
            index = self._derived[make] = make()
            for order in self.by_order:
                index.touched(order)
            moved = getattr(index, "moved", None)
            if moved is not None:
                self._told_of_jobs.append(moved)
                for job in self.jobs.values():
                    moved(None, job)
        return index

    def _touch(self, node: NodeState) -> None:
        for index in self._derived.values():
            index.touched(node.order)

    def is_blocked(self, pool: str, by: Blocked) -> bool:
        """Whether what blocks a pool still holds: the same job is first, and as few GPUs are free."""
        if self.queues[pool].first != by.job:
            return False
        kinds = self.gpu_types.get(pool, ()) if by.gpu_type is None else (by.gpu_type,)
        return all(self.free[pool, kind].most_free < by.gpus for kind in kinds if (pool, kind) in self.free)

    def kind_of(self, load: GpuLoad) -> Kind:
        """Pool and type of a GPU."""
        return self.nodes[load.id.node].node.pool, load.gpu.type

    @property
    def running(self) -> Mapping[JobId, Job]:
        """Jobs that hold GPUs."""
        return {job.id: job for job in self.jobs.values() if job.placement is not None}

    def _enter_gpus(self, node: NodeState) -> None:
        for gpu in node.node.gpus:
            gpu_id = node.ids[gpu.index] = GpuId(node.node.name, gpu.index)
            self.gpus[gpu_id] = GpuLoad(gpu_id, gpu)
        for job_id in node.jobs:
            job = self.jobs[job_id]
            for slot in job.placement.slots_on(node.node.name) if job.placement else ():
                load = self.gpus[slot.gpu]
                if job.is_returning:
                    self.gpus[slot.gpu] = load.awaited_by(job_id, returning=True)
                elif not job.is_on_host:
                    self.gpus[slot.gpu] = load.with_booking(self.booking(job, load.gpu.type, slot.lane))
        masks = {gpu.type: 0 for gpu in node.node.gpus}
        for gpu in node.node.gpus:
            load = self.gpus[node.ids[gpu.index]]
            self._index(load)
            masks[gpu.type] |= load.is_free << gpu.index
        for kind, mask in sorted(masks.items()):
            self._set_free(node, kind, mask)

    def _forget_gpus(self, node: NodeState) -> None:
        for gpu in node.node.gpus:
            self._unindex(self.gpus.pop(node.ids.pop(gpu.index)))
        for kind in node.free:
            self.free[node.node.pool, kind].set(node.order, 0)
        node.free.clear()

    def _set_free(self, node: NodeState, gpu_type: str, mask: int) -> None:
        node.free[gpu_type] = mask
        kind = (node.node.pool, gpu_type)
        if kind not in self.free:
            self.free[kind] = FreeIndex()
            insort(self.gpu_types.setdefault(node.node.pool, []), gpu_type)
        self.free[kind].set(node.order, mask.bit_count())

    def _index(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            self.keys_in_use.setdefault(booking.key, set()).add(load.id)
        keys = self._open.get((self.kind_of(load), len(load.bookings))) if self._open else None
        if keys is not None and load.is_open:
            insort(keys, load.sort_key)

    def _unindex(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            self.keys_in_use[booking.key].discard(load.id)
        keys = self._open.get((self.kind_of(load), len(load.bookings))) if self._open else None
        if keys is not None and load.is_open:
            del keys[bisect_left(keys, load.sort_key)]
