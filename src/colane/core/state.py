"""`ClusterState`: the one mutable thing, owned by the core, indexed so that an event costs what it changes.

Live jobs only: a job that has ended leaves the state with the outcome that ends it. Every number here can be derived
from nodes and jobs, so nothing is lost when the process dies; `restore` does just that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from colane.core.free import FreeIndex
from colane.core.load import Booking, GpuLoad
from colane.core.queue import PoolQueue
from colane.model.hardware import GpuId, Node
from colane.model.job import Job, JobId, JobState
from colane.model.profile import Memory, ProfileKey
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs, profile_key

Kind = tuple[str, str]
"""A pool and a GPU type: GPUs of one kind are interchangeable to a policy."""

SortKey = tuple[float, float, int, GpuId]


@dataclass(slots=True)
class NodeState:
    """A node with what is booked on it."""

    node: Node
    order: int
    generation: int
    jobs: dict[JobId, None] = field(default_factory=dict)
    cores_booked: set[int] = field(default_factory=set)
    host_memory_booked_bytes: int = 0
    kinds: tuple[str, ...] = ()

    @property
    def cores_free(self) -> int:
        """Cores nobody has booked."""
        return len(self.node.cores) - len(self.cores_booked)

    @property
    def host_memory_free_bytes(self) -> int:
        """Host memory nobody has booked."""
        return self.node.host_memory_bytes - self.host_memory_booked_bytes


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
        self.by_order: dict[int, NodeState] = {}
        self.changed_pools: set[str] = set()
        self.keys_in_use: dict[ProfileKey, set[GpuId]] = {}
        self._open: dict[Kind, list[SortKey]] = {}
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
        self._leave(old)
        if job.has_ended:
            self.jobs.pop(job.id, None)
            self.progress.pop(job.id, None)
        else:
            self.jobs[job.id] = job
            self._enter(job)

    def _leave(self, old: Job | None) -> None:
        if old is None:
            return
        if old.state is JobState.QUEUED:
            self.queues[old.spec.pool].remove(old.id, old.spec)
            self.changed_pools.add(old.spec.pool)

    def _enter(self, job: Job) -> None:
        if job.state is JobState.QUEUED:
            self.queues.setdefault(job.spec.pool, PoolQueue()).add(job.id, job.spec)
            self.changed_pools.add(job.spec.pool)
        elif job.placement is not None and job.id not in self.nodes[job.placement.node].jobs:
            self.book(job)

    def book(self, job: Job) -> None:
        """Enter a placed job on its GPUs and its node."""
        placement = job.placement
        if placement is None:
            return
        node = self.nodes[placement.node]
        node.jobs[job.id] = None
        node.cores_booked.update(placement.cores)
        node.host_memory_booked_bytes += job.spec.host_memory_bytes
        for slot in placement.slots:
            load = self.gpus[slot.gpu]
            self.set_load(load.with_booking(self.booking(job, load.gpu.type, slot.lane)))

    def release(self, job: Job) -> None:
        """Take a job off its GPUs and its node."""
        placement = job.placement
        if placement is None or placement.node not in self.nodes:
            return
        node = self.nodes[placement.node]
        if node.jobs.pop(job.id, self) is self:
            return
        node.cores_booked.difference_update(placement.cores)
        node.host_memory_booked_bytes -= job.spec.host_memory_bytes
        for gpu in placement.gpus:
            self.set_load(self.gpus[gpu].without(job.id))
        self.changed_pools.add(node.node.pool)

    def booking(self, job: Job, gpu_type: str, lane: int) -> Booking:
        """What a job holds of a GPU of that type, by present beliefs."""
        spec = job.spec
        return Booking(
            job.id,
            lane,
            profile_key(spec, gpu_type),
            spec.user,
            spec.share,
            spec.company,
            self.beliefs.memory(spec, gpu_type),
            self.beliefs.load(spec, gpu_type),
        )

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
        known.kinds = tuple(sorted({gpu.type for gpu in node.gpus}))
        self._enter_gpus(known)
        self.changed_pools.add(node.pool)

    def remove_node(self, name: str) -> None:
        """Drop a node that carries no job any more."""
        node = self.nodes.pop(name)
        self._forget_gpus(node)
        del self.by_order[node.order]

    def set_load(self, load: GpuLoad) -> None:
        """Take the new value of a GPU and keep every index true."""
        self._unindex(self.gpus[load.id])
        self.gpus[load.id] = load
        self._index(load)
        self._count_free(self.nodes[load.id.node], load.gpu.type)

    def refresh_bookings(self, key: ProfileKey) -> None:
        """Re-book the jobs of a family whose profile changed, by the new beliefs."""
        for gpu in sorted(self.keys_in_use.get(key, ())):
            load = self.gpus[gpu]
            fresh = (self.booking(self.jobs[b.job], load.gpu.type, b.lane) for b in load.bookings)
            self.set_load(GpuLoad(load.id, load.gpu, tuple(fresh)))
            self.changed_pools.add(self.nodes[gpu.node].node.pool)

    def open_gpus(self, kind: Kind) -> list[SortKey]:
        """Sort keys of the GPUs of a kind that may be joined, lightest first; kept up to date once asked for."""
        if kind not in self._open:
            loads = (load for load in self.gpus.values() if load.is_open and self.kind_of(load) == kind)
            self._open[kind] = sorted(load.sort_key for load in loads)
        return self._open[kind]

    def kind_of(self, load: GpuLoad) -> Kind:
        """Pool and type of a GPU."""
        return self.nodes[load.id.node].node.pool, load.gpu.type

    def memory_of(self, job: Job, gpu_type: str) -> Memory | None:
        """Believed memory need of a job on each GPU of that type."""
        return self.beliefs.memory(job.spec, gpu_type)

    @property
    def running(self) -> Mapping[JobId, Job]:
        """Jobs that hold GPUs."""
        return {job.id: job for job in self.jobs.values() if job.placement is not None}

    def _enter_gpus(self, node: NodeState) -> None:
        for gpu in node.node.gpus:
            gpu_id = GpuId(node.node.name, gpu.index)
            self.gpus[gpu_id] = GpuLoad(gpu_id, gpu)
        for job_id in node.jobs:
            job = self.jobs[job_id]
            for slot in job.placement.slots if job.placement else ():
                load = self.gpus[slot.gpu]
                self.gpus[slot.gpu] = load.with_booking(self.booking(job, load.gpu.type, slot.lane))
        for gpu in node.node.gpus:
            self._index(self.gpus[GpuId(node.node.name, gpu.index)])
        for kind in node.kinds:
            self._count_free(node, kind)

    def _forget_gpus(self, node: NodeState) -> None:
        for gpu in node.node.gpus:
            self._unindex(self.gpus.pop(GpuId(node.node.name, gpu.index)))
        for kind in node.kinds:
            self.free[node.node.pool, kind].set(node.order, 0)

    def _count_free(self, node: NodeState, gpu_type: str) -> None:
        name = node.node.name
        free = sum(gpu.type == gpu_type and self.gpus[GpuId(name, gpu.index)].is_free for gpu in node.node.gpus)
        self.free.setdefault((node.node.pool, gpu_type), FreeIndex()).set(node.order, free)

    def _index(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            self.keys_in_use.setdefault(booking.key, set()).add(load.id)
        keys = self._open.get(self.kind_of(load)) if self._open else None
        if keys is not None and load.is_open:
            insort(keys, load.sort_key)

    def _unindex(self, load: GpuLoad) -> None:
        for booking in load.bookings:
            self.keys_in_use[booking.key].discard(load.id)
        keys = self._open.get(self.kind_of(load)) if self._open else None
        if keys is not None and load.is_open:
            del keys[bisect_left(keys, load.sort_key)]
