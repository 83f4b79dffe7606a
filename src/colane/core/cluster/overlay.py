"""The cluster as it will be once what has been decided is carried out: a copy-on-touch overlay of the state.

Nothing of the state is copied but what is touched, so an overlay costs what is decided.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from colane.core.cluster.bookings import NodeLeft, books_host
from colane.core.cluster.free import FreeIndex
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.open_gpus import SortKey
from colane.core.cluster.state import Kind, NodeState
from colane.core.cluster.view import ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.resources import Resources, host_needs

Cores = tuple[int, ...]


class Overlay:
    """What a policy may look at while it decides.

    Attributes:
        view: The cluster as it is.
        now_s: The time.
        beliefs: What is believed of speed and memory.
        held: GPUs kept for waiting jobs.
        touched: GPUs about which something was decided, in that order.
    """

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.now_s = view.now_s
        self.beliefs = view.beliefs
        self.held: dict[GpuId, JobId] = {}
        self.touched: list[GpuId] = []
        self._loads: dict[GpuId, GpuLoad] = {}
        self._nodes: dict[str, NodeLeft] = {}
        self._free: dict[Kind, FreeIndex] = {}
        self._free_masks: dict[tuple[int, str], int] = {}
        self._opened: dict[tuple[Kind, int], list[SortKey]] = {}
        self._decided: set[JobId] = set()
        self._cpu_only: dict[str, list[JobSpec]] = {}
        self._has_opened = False

    def load(self, gpu: GpuId) -> GpuLoad:
        """A GPU as it will be."""
        return (self._loads.get(gpu) or self.view.gpu(gpu)) if self._loads else self.view.gpu(gpu)

    def free(self, kind: Kind) -> FreeIndex:
        """Free GPUs of a kind as they will be."""
        return (self._free.get(kind) or self.view.free(kind)) if self._free else self.view.free(kind)

    def cores_free(self, node: NodeState) -> list[int]:
        """Cores of a node that a job with GPUs may have, in order: not to be booked, and wanted back by no job."""
        free, withheld = self.cores_unbooked(node), node.cores_withheld
        return [core for core in free if core not in withheld] if withheld else free

    def cores_unbooked(self, node: NodeState) -> list[int]:
        """Cores of a node that will not be booked, in order: what jobs without GPUs may have."""
        left = self._nodes.get(node.node.name)
        booked = node.cores_booked
        if left is None:
            return [core for core in node.node.cores if core not in booked]
        return [core for core in node.node.cores if left.is_free(core, booked)]

    def host_memory_free_bytes(self, node: NodeState) -> int:
        """Host memory of a node that will not be booked."""
        left = self._nodes.get(node.node.name)
        return node.host_memory_free_bytes - (left.host_memory_taken_bytes if left else 0)

    def host_bandwidth_free(self, node: NodeState) -> float:
        """Bytes per second to host memory of a node that will not be booked; infinite where that is not known."""
        left = self._nodes.get(node.node.name)
        return node.host_bandwidth_free - (left.host_bandwidth_taken if left else 0)

    def host_free(self, node: NodeState) -> Resources:
        """Cores, host memory and its bandwidth of a node that will not be booked."""
        cores, left = node.cores_free, self._nodes.get(node.node.name)
        if left:
            cores += len(left.cores_given) - len(left.cores_taken)
        return Resources(0, cores, self.host_memory_free_bytes(node), self.host_bandwidth_free(node))

    def has_room(self, node: NodeState, spec: JobSpec, ranks: int | None = None) -> bool:
        """Whether a node has the cores, the host memory and its bandwidth that a job books there.

        For so many of its ranks, or for all. One that is drained has no room for jobs without GPUs.
        """
        if not spec.gpus and not node.node.takes_jobs:
            return False
        if not books_host(spec):
            return True
        free = self.host_free(node) if spec.gpus else self.cpu_only_free(node)
        return host_needs(spec, spec.gpus if ranks is None else ranks) <= free

    def has_room_beside(self, node: NodeState, spec: JobSpec) -> bool:
        """The same on GPUs that others use: there the cores it asked for must be free, as far as it uses them.

        With fewer it would go slower than was weighed when it was seen whether sharing pays.
        """
        return self.has_room(node, spec) and self.host_free(node).cores >= spec.cores_beside

    def had_room(self, node: NodeState, spec: JobSpec) -> bool:
        """Whether a node had room for a job without GPUs before anything was decided in this draft."""
        return node.node.takes_jobs and (not books_host(spec) or host_needs(spec, 0) <= cpu_only_free(node))

    def cpu_only_free(self, node: NodeState) -> Resources:
        """What a node will have for jobs without GPUs: the cores that are its cpu devices are not theirs."""
        left = self._nodes.get(node.node.name)
        if left is None:
            return cpu_only_free(node)
        booked = node.cores_booked
        free = len([core for core in node.cores_outside if left.is_free(core, booked)])
        return Resources(0, free, self.host_memory_free_bytes(node), self.host_bandwidth_free(node))

    def hosts_touched(self) -> list[NodeState]:
        """Nodes about whose cores, host memory or its bandwidth something was decided."""
        return [self.view.nodes[name] for name in self._nodes]

    def cpu_only_taken(self, node: NodeState) -> Resources:
        """What jobs without GPUs will have booked of a node."""
        specs = [self.view.job(job).effective for job in node.jobs] + self._cpu_only.get(node.node.name, [])
        return sum([host_needs(spec, 0) for spec in specs if not spec.gpus], Resources())

    def homes(self, job: Job) -> tuple[GpuLoad, ...]:
        """GPUs that a parked job may come back to, as they will be, free and others, but for those held for another.

        There are none for any other job.
        """
        node = self.view.nodes.get(job.placement.node) if job.home and job.placement is not None else None
        if node is None or job.placement is None:
            return ()
        kind = self.view.gpu(job.placement.gpus[0]).gpu.type
        at_home = [gpu for gpu in node.ids.values() if job.home in {node.node.name, str(gpu)}]
        loads = [self.load(gpu) for gpu in at_home if self.held.get(gpu, job.id) == job.id]
        return tuple([load for load in loads if load.gpu.healthy and load.gpu.type == kind])

    def has_room_at_home(self, job: Job) -> bool:
        """Whether its node has the cores and the bandwidth a parked job needs to come back; host memory it has."""
        node = self.view.nodes[job.placement.node] if job.placement is not None else None
        if node is None:
            return False
        need, free = host_needs(job.effective, job.gpu_count), self.host_free(node)
        has_bandwidth = need.host_bandwidth_bytes_per_s <= free.host_bandwidth_bytes_per_s
        return need.cores <= free.cores and has_bandwidth

    def fits_alone(self, gpu: GpuLoad, spec: JobSpec) -> bool:
        """Whether a free GPU has the memory a job is believed to need; an unknown need fits any."""
        memory = self.beliefs.terms(spec, gpu.gpu.type).memory
        return memory is None or sum(memory) <= gpu.capacity_bytes

    def all_fit_alone(self, gpus: Sequence[GpuLoad], spec: JobSpec) -> bool:
        """The same of some free GPUs of one type."""
        memory = self.beliefs.terms(spec, gpus[0].gpu.type).memory if gpus else None
        return memory is None or sum(memory) <= min([load.capacity_bytes for load in gpus])

    def free_gpus(self, node: NodeState, gpu_type: str) -> list[GpuLoad]:
        """Free GPUs of a type on a node, by index; those that others use come last."""
        loads: list[GpuLoad] = []
        mask, ids = self._free_mask(node, gpu_type), node.ids
        while mask:
            low = mask & -mask
            loads.append(self.load(ids[low.bit_length() - 1]))
            mask ^= low
        for load in loads:
            if load.gpu.is_disturbed:
                loads.sort(key=_is_disturbed)
                break
        return loads

    def free_count(self, node: NodeState, gpu_type: str) -> int:
        """How many GPUs of a type a node will have free."""
        return self._free_mask(node, gpu_type).bit_count()

    def open_gpus(self, kind: Kind, jobs_max: int) -> Iterator[GpuLoad]:
        """GPUs of a kind with at most that many jobs that may be joined, as they will be, lightest first."""
        numbers = range(1, jobs_max + 1)
        opened = [self._opened_keys(kind, jobs) for jobs in numbers]
        for key in merge(*opened, *[self._left_open(kind, jobs) for jobs in numbers]):
            yield self.load(key[3])

    def has_open(self, kind: Kind, jobs_max: int) -> bool:
        """Whether there may be a GPU of a kind with at most that many jobs that may be joined."""
        for jobs in range(1, jobs_max + 1):
            if self.view.open_gpus(kind, jobs):
                return True
        return self._has_opened

    def is_undecided(self, job: JobId) -> bool:
        """Whether a job, one that waits or one that runs, has no action yet: a plan may have one for each."""
        return job not in self._decided

    # -- for callers that decide

    def _put(self, loads: Iterable[GpuLoad]) -> None:
        """Take the new values of GPUs, each with one job more; what was free is so no more."""
        taken: dict[tuple[str, str], int] = {}
        for load in loads:
            old, is_touched = self.load(load.id), load.id in self._loads
            self._loads[load.id] = load
            self.touched.append(load.id)
            self._has_opened = self._has_opened or load.is_open
            if self._opened:
                kind = (self.view.nodes[load.id.node].node.pool, load.gpu.type)
                if is_touched:
                    _drop(self._opened.get((kind, len(old.bookings))), old)
                _add(self._opened.get((kind, len(load.bookings))), load)
            if old.is_free:
                at = load.id.node, load.gpu.type
                taken[at] = taken.get(at, 0) | 1 << load.id.number
        for (name, gpu_type), mask in taken.items():
            node = self.view.nodes[name]
            self._set_free(node, (node.node.pool, gpu_type), self._free_mask(node, gpu_type) & ~mask)

    def _left_open(self, kind: Kind, jobs: int) -> Iterator[SortKey]:
        """Of those about which nothing was decided."""
        for key in self.view.open_gpus(kind, jobs):
            if key[3] not in self._loads:
                yield key

    def _opened_keys(self, kind: Kind, jobs: int) -> list[SortKey]:
        """Of the others, made when first asked for and kept true from then on."""
        keys = self._opened.get((kind, jobs))
        if keys is None:
            keys = self._opened[kind, jobs] = []
            for load in self._loads.values():
                if (self.view.nodes[load.id.node].node.pool, load.gpu.type) == kind and len(load.bookings) == jobs:
                    _add(keys, load)
        return keys

    def _free_mask(self, node: NodeState, gpu_type: str) -> int:
        mask = self._free_masks.get((node.order, gpu_type))
        return node.free.get(gpu_type, 0) if mask is None else mask

    def _set_free(self, node: NodeState, kind: Kind, mask: int) -> None:
        self._free_masks[node.order, kind[1]] = mask
        if kind not in self._free:
            self._free[kind] = self.view.free(kind).copy()
        self._free[kind].set(node.order, mask.bit_count())


def cpu_only_free(node: NodeState) -> Resources:
    """What a node has for jobs without GPUs before anything is decided."""
    outside = node.cores_outside
    if len(outside) == len(node.node.cores):  # no cpu device: whatever is booked is of these
        cores = len(outside) - len(node.cores_booked)
    else:
        cores = len([core for core in outside if core not in node.cores_booked])
    return Resources(0, cores, node.host_memory_free_bytes, node.host_bandwidth_free)


def _is_disturbed(load: GpuLoad) -> bool:
    return load.gpu.is_disturbed


def _drop(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        del keys[bisect_left(keys, load.sort_key)]


def _add(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        insort(keys, load.sort_key)
