"""A policy's working copy: it knows the effect of what has already been decided, and yields the plan.

Nothing of the state is copied but what is touched, so a draft costs what it decides.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from math import inf
from typing import Any, Final, NamedTuple

from colane.core.cluster.bookings import NodeLeft, NodeState, books_host, host_booking, throttled
from colane.core.cluster.contents import Kind
from colane.core.cluster.free import FreeIndex, SortKey
from colane.core.cluster.load import GpuLoad, booked_on
from colane.core.cluster.view import ENDLESS, ClusterView
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.model.job_spec import is_among
from colane.model.phases import Throttle
from colane.model.placement import Placement, Slot
from colane.model.plan import (
    NOTHING,
    ON_CHANGE,
    Action,
    Move,
    Park,
    Plan,
    Remark,
    Replan,
    Resize,
    SetCores,
    SetThrottle,
    Start,
    Stop,
)
from colane.model.reason import Reason
from colane.model.resources import Resources, cores_used, host_needs

Cores = tuple[int, ...]


class Spared:
    """Users, and how many GPUs their running jobs may yet leave to others."""

    def __init__(self, users: frozenset[str], beyond: int) -> None:
        self.users = users
        self.beyond = beyond


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
        self._gpus = view.gpus
        self.held: dict[GpuId, JobId] = {}
        self.reserved: dict[str, JobId] = {}
        self._spared: dict[JobId, Spared] = {}
        self._groups_spared: list[Spared] = []
        self.touched: list[GpuId] = []
        self._loads: dict[GpuId, GpuLoad] = {}
        self._nodes: dict[str, NodeLeft] = {}
        self._free: dict[Kind, FreeIndex] = {}
        self._free_masks: dict[tuple[int, str], int] = {}
        self._opened: dict[tuple[Kind, int], list[SortKey]] = {}
        self._decided: set[JobId] = set()
        self._cpu_only: dict[str, list[JobSpec]] = {}
        self._has_opened = False
        self._asked_open = 0
        self._joined: dict[str, bool] = {}
        """Nodes to which jobs come, and whether one has it whole then."""

    def load(self, gpu: GpuId) -> GpuLoad:
        """A GPU as it will be."""
        return (self._loads.get(gpu) or self._gpus[gpu]) if self._loads else self._gpus[gpu]

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

    def may_use(self, node: NodeState, spec: JobSpec) -> bool:
        """Whether a job that waits may come to a node at all: it is among those it names, and none has it whole."""
        name = node.node.name
        if not is_among(spec.nodes, name) or node.whole is not None or self._joined.get(name, False):
            return False
        return not spec.whole_node or not (node.jobs or name in self._joined)

    def has_room(self, node: NodeState, spec: JobSpec, ranks: int | None = None) -> bool:
        """Whether a job may use a node, and finds there the cores, the host memory and its bandwidth that it books.

        For so many of its ranks, or for all. One that is drained has no room for jobs without GPUs.
        """
        if not self.may_use(node, spec):
            return False
        if not spec.gpus and (not node.node.takes_jobs or cores_used(spec) > self.cores_unused(node)):
            return False
        if not books_host(spec):
            return True
        free = self.host_free(node) if spec.gpus else self.cpu_only_free(node)
        return host_needs(spec, spec.gpus if ranks is None else ranks) <= free

    def cores_unused(self, node: NodeState) -> int:
        """Cores that no job without GPUs will use."""
        left = self._nodes.get(node.node.name)
        return node.cores_unused - (left.cores_used if left else 0)

    def has_room_beside(self, node: NodeState, spec: JobSpec) -> bool:
        """The same on GPUs that others use: there the cores it asked for must be free, as far as it uses them.

        With fewer it would go slower than was weighed when it was seen whether sharing pays.
        """
        return self.has_room(node, spec) and self.host_free(node).cores >= spec.cores_beside

    def had_room(self, node: NodeState, spec: JobSpec) -> bool:
        """Whether a node had room for a job without GPUs before anything was decided in this draft."""
        if not node.node.takes_jobs or not is_among(spec.nodes, node.node.name):
            return False
        if node.whole is not None or (spec.whole_node and node.jobs) or cores_used(spec) > node.cores_unused:
            return False
        return not books_host(spec) or host_needs(spec, 0) <= cpu_only_free(node)

    def cpu_only_free(self, node: NodeState) -> Resources:
        """What a node will have for jobs without GPUs, see `cpu_only_free`."""
        left = self._nodes.get(node.node.name)
        if left is None:
            return cpu_only_free(node)
        free = self.cores_unused(node) if node.has_cpu_devices else len(self.cores_unbooked(node))
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
        mask, ids, gpus, known = self._free_mask(node, gpu_type), node.ids, self._gpus, self._loads
        while mask:
            low = mask & -mask
            gpu = ids[low.bit_length() - 1]
            loads.append(known[gpu] if gpu in known else gpus[gpu])
            mask ^= low
        if node.is_disturbed:
            loads.sort(key=lambda load: load.gpu.is_disturbed)
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
        if not self._has_opened:
            new, self._asked_open = self.touched[self._asked_open :], len(self.touched)
            self._has_opened = any(gpu in self._loads and self._loads[gpu].is_open for gpu in new)
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
        mask = self._free_masks.get((node.order, gpu_type)) if self._free_masks else None
        return node.free.get(gpu_type, 0) if mask is None else mask

    def _set_free(self, node: NodeState, kind: Kind, mask: int) -> None:
        self._free_masks[node.order, kind[1]] = mask
        if kind not in self._free:
            self._free[kind] = self.view.free(kind).copy()
        self._free[kind].set(node.order, mask.bit_count())


def cpu_only_free(node: NodeState) -> Resources:
    """What a node has for jobs without GPUs before anything is decided: where its cores are devices, to share."""
    cores = node.cores_unused if node.has_cpu_devices else len(node.node.cores) - len(node.cores_booked)
    return Resources(0, cores, node.host_memory_free_bytes, node.host_bandwidth_free)


def shared_part(node: NodeState, jobs: Mapping[JobId, Job], load: Callable[[GpuId], GpuLoad]) -> int:
    """Cores of a node for the GPUs whose jobs have none of their own; of one that jobs share, for their part of it."""
    gpus = 0.0
    for job_id in node.jobs:
        job = jobs[job_id]
        if job.placement is None or job.placement.cores_on(node.node.name):
            continue
        for gpu in job.gpus_held:
            if gpu.node == node.node.name:
                gpus += 1.0 / max(1, len(load(gpu).bookings))
    return int(len(node.node.cores) * gpus / max(1, len(node.ids)))


def _drop(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        del keys[bisect_left(keys, load.sort_key)]


def _add(keys: list[SortKey] | None, load: GpuLoad) -> None:
    if keys is not None and load.is_open:
        insort(keys, load.sort_key)


class HostHeld(NamedTuple):
    """What is kept of a node for a waiting job without GPUs."""

    job: Job
    node: NodeState
    cores: Cores
    cores_used: int
    host_memory_bytes: int
    host_bandwidth: float


ACTIONS_MAX: Final = 512
"""A plan that has decided so much leaves the rest to the next step, so that nothing else waits for long meanwhile."""

LOOKS_A_PLAN: Final = 2048
"""One that has looked at so much does, too: one way for one job on one GPU, or what takes as long. Work is counted and
not timed, so that whatever goes over the same again decides the same."""


class Draft(Overlay):
    """Decisions so far, and the cluster as it will be once they are carried out."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__(view)
        self.actions: list[Action] = []
        self.actions_max = ACTIONS_MAX
        self.looks = 0
        self.waits: dict[JobId, Reason] = {}
        self.class_waits: dict[NeedClass, Reason] = {}
        self.rest: dict[str, Reason] = {}
        self.replan: dict[str, Replan] = {}
        self.serves_cpu_only = False
        self.settled: dict[str, int] = {}
        self.worked_out: dict[object, Any] = {}
        self._hosts_held: dict[str, HostHeld] = {}

    def act(self, action: Action) -> None:
        """Put an action into the plan: nothing else in the plan decides about its job."""
        self._decided.add(action.job)
        self.actions.append(action)
        if self._groups_spared and isinstance(action, (Stop, Park)):
            job = self.view.job(action.job)
            for spared in self._groups_spared:
                spared.beyond -= job.gpu_count if job.spec.user in spared.users else 0
        self.view.work_left = ENDLESS

    def leave_alone(self, job: JobId) -> None:
        """Nothing else in the plan decides about a job, one that waits or one that runs."""
        self._decided.add(job)

    def spare(self, jobs: Iterable[JobId], users: frozenset[str], beyond: int) -> None:
        """These running jobs leave for others' than these users' jobs of one GPU alone, and for `beyond` GPUs at most.

        Whatever makes them better off is decided as for others.
        """
        spared = Spared(users, beyond)
        self._groups_spared.append(spared)
        self._spared.update(dict.fromkeys(jobs, spared))

    def is_spared(self, job: JobId) -> bool:
        """Whether a running job may leave for no other user's."""
        spared = self._spared.get(job) if self._spared else None
        return spared is not None and self.view.job(job).gpu_count > spared.beyond

    def leave_for(self, victims: Sequence[Job], job: Job) -> bool:
        """Whether running jobs may all leave for another, as far as they are spared."""
        for spared in [self._spared[victim.id] for victim in victims if victim.id in self._spared]:
            if job.spec.user not in spared.users:
                lost = sum([victim.gpu_count for victim in victims if victim.spec.user in spared.users])
                if job.effective.gpus > 1 or lost > spared.beyond:
                    return False
        return True

    def start(self, job: Job, gpus: Iterable[GpuLoad], reason: Reason, lanes: Sequence[int] | None = None) -> None:
        """Run a waiting job on these GPUs, one a rank, in these lanes or else a new one on each, with its cores.

        GPUs of one node must follow one another; those of several nodes are for jobs that may span them. A parked job
        comes back there: its GPUs are to be among its `homes`.
        """
        placement = self._place(job, tuple(gpus), lanes)
        action = Start if job.parking is None or not job.home else Move
        self.act(action(job.id, placement, reason))

    def _place(self, job: Job, loads: tuple[GpuLoad, ...], lanes: Sequence[int] | None) -> Placement:
        taken = lanes or [load.next_lane for load in loads]
        slots = tuple([Slot(load.id, taken[rank]) for rank, load in enumerate(loads)])
        cores, cores_elsewhere = self._take(job, loads)
        self._put(booked_on(job, self.beliefs, loads, taken, len(slots)))
        for load in loads:
            self._joined[load.id.node] = job.spec.whole_node
        return Placement(slots, cores, cores_elsewhere)

    def start_on_node(self, job: Job, node: NodeState, reason: Reason) -> None:
        """Run a job without GPUs on a node that has room for it, with the cores it books: those near no GPU first."""
        spec, name = job.effective, node.node.name
        need = host_needs(spec, 0)
        near = {core for gpu in node.node.gpus for core in gpu.cores}
        free = self.cores_unbooked(node) if need.cores and not node.has_cpu_devices else []
        cores = tuple(sorted(sorted(free, key=lambda core: (core in near, core))[: need.cores]))
        left = self._nodes.setdefault(name, NodeLeft())
        left.take(cores)
        left.cores_used += cores_used(spec)
        left.host_memory_taken_bytes += need.host_memory_bytes
        left.host_bandwidth_taken += need.host_bandwidth_bytes_per_s
        self._cpu_only.setdefault(name, []).append(spec)
        self._joined[name] = spec.whole_node
        self.act(Start(job.id, Placement((), cores, node=name), reason))

    def stop(
        self, job: Job, reason: Reason, for_job: JobId | None = None, *,
        save: bool = True, learn: bool = False, isolate: bool = False,
    ) -> None:  # fmt: skip
        """Take a running job off its GPUs, for a waiting one if so said; they are free later, not in this draft."""
        self.act(Stop(job.id, reason, for_job, save=save, learn=learn, isolate=isolate))

    def park(self, job: Job, reason: Reason, for_job: JobId | None = None, *, isolate: bool = False) -> None:
        """Let a job give its GPUs up while it lives, see `parking_refusal`; they are free later, not in this draft."""
        if job.placement is not None:
            left = self._nodes.setdefault(job.placement.node, NodeLeft())
            left.host_memory_taken_bytes += self.view.bytes_to_move(job)
        self.act(Park(job.id, reason, for_job, isolate=isolate))

    def parking_refusal(self, job: Job, more_bytes: int = 0) -> str | None:
        """Why it may not park a job; None when it may.

        The host memory that it takes already is not free for the job, nor is so much more of the node's.
        """
        left = None if job.placement is None else self._nodes.get(job.placement.node)
        return self.view.parking_refusal(job, more_bytes + (left.host_memory_taken_bytes if left else 0))

    def move(self, job: Job, gpus: Iterable[GpuLoad], reason: Reason, lanes: Sequence[int] | None = None) -> None:
        """Let a parked job come back, as `start` does, or a stepping one of one GPU go on in another lane of it."""
        if job.home or job.placement is None:
            self.start(job, gpus, reason, lanes)
            return
        load = next(iter(gpus))
        lane = lanes[0] if lanes else load.next_lane
        self._put([load.in_lane(job.id, lane)])
        self.act(Move(job.id, replace(job.placement, slots=(Slot(load.id, lane),)), reason))

    def resize(
        self, job: Job, gpus: Iterable[GpuLoad], reason: Reason, lanes: Sequence[int] | None = None,
        for_job: JobId | None = None,
    ) -> None:  # fmt: skip
        """Stop a running job and restart it on these GPUs, some of which it may have; it keeps its lanes on those.

        What it has and will not have is free later, not in this draft.
        """
        assert job.placement is not None  # noqa: S101 - for the type checker
        loads, own = tuple(gpus), {slot.gpu: slot for slot in job.placement.slots}
        wanted = zip(loads, lanes or [load.next_lane for load in loads], strict=True)
        slots = tuple([own.get(load.id) or Slot(load.id, lane) for load, lane in wanted])
        for name in job.placement.nodes:
            self._nodes.setdefault(name, NodeLeft()).give(job.placement.cores_on(name))
        placement = Placement(slots, *self._take(job, loads))
        for name in job.placement.nodes:
            kept = set(job.placement.cores_on(name)) - set(placement.cores_on(name))
            self._nodes[name].take(kept)
        new = [(load, slot.lane) for load, slot in zip(loads, slots, strict=True) if slot.gpu not in own]
        for load, _ in new:
            self._joined[load.id.node] = job.spec.whole_node
        more, taken = [load for load, _ in new], [lane for _, lane in new]
        self._put(booked_on(job, self.beliefs, more, taken, len(slots)))
        kept_gpus = {load.id for load in loads}
        self.touched += [gpu for gpu in own if gpu not in kept_gpus]
        self.act(Resize(job.id, placement, reason, for_job))

    def set_cores(self, job: Job, cores: Cores, reason: Reason, elsewhere: tuple[tuple[str, Cores], ...] = ()) -> None:
        """Give a running job other cores at once: those it gives up others may have in this draft."""
        assert job.placement is not None  # noqa: S101 - for the type checker
        placement = replace(job.placement, cores=cores, cores_elsewhere=elsewhere)
        for name in placement.nodes:
            had, has = set(job.placement.cores_on(name)), set(placement.cores_on(name))
            left = self._nodes.setdefault(name, NodeLeft())
            left.give(had - has)
            left.take(has - had)
        self.act(SetCores(job.id, cores, elsewhere, reason))

    def set_throttle(self, job: Job, throttle: Throttle | None, reason: Reason) -> None:
        """Hold a running job without GPUs back, or let it go."""
        assert job.placement is not None  # noqa: S101 - for the type checker
        had, has = set(job.placement.cores), set(throttled(job, throttle).cores)
        left = self._nodes.setdefault(job.placement.node, NodeLeft())
        left.give(had - has)
        left.take(has - had)
        left.cores_used += len(has) - len(had)
        self.act(SetThrottle(job.id, throttle, reason))

    def remark(self, job: Job, reason: Reason, *, learn: bool = False) -> None:
        """Record a reason with a running job."""
        self.act(Remark(job.id, reason, learn=learn))

    def hold(self, job: Job, gpus: Iterable[GpuLoad], spec: JobSpec | None = None) -> None:
        """Keep these GPUs, free ones and others, for a waiting job: no other job starts on them.

        Of the cores, the host memory and its bandwidth that it books, at the size it is to have (`spec`; as asked where
        that is not given), what is free on their nodes is kept as well, but for the cores that come free with them.
        """
        by_node: dict[str, list[GpuLoad]] = {}
        for load in gpus:
            self.held[load.id] = job.id
            self.touched.append(load.id)
            by_node.setdefault(load.id.node, []).append(load)
        for name, loads in by_node.items():
            node = self.view.nodes[name]
            self._hold_gpus(node, loads)
            if books_host(job.effective):
                whole = (spec or job.effective).gpus
                ranks = len(loads) if len(by_node) > 1 else whole
                self._hold_host(node, host_needs(spec or job.effective, ranks), self._cores_coming(name, loads))

    def _hold_gpus(self, node: NodeState, loads: Iterable[GpuLoad]) -> None:
        """Those that are free are so no more."""
        kept: dict[str, int] = {}
        for load in loads:
            kept[load.gpu.type] = kept.get(load.gpu.type, 0) | 1 << load.id.number
        for gpu_type, mask in kept.items():
            free = self._free_mask(node, gpu_type)
            if free & mask:
                self._set_free(node, (node.node.pool, gpu_type), free & ~mask)

    def _cores_coming(self, node: str, loads: Iterable[GpuLoad]) -> int:
        """Cores of a node that jobs which leave these GPUs have there."""
        jobs = [self.view.job(number) for number in dict.fromkeys([number for load in loads for number in load.jobs])]
        going = [job for job in jobs if job.is_leaving or not self.is_undecided(job.id)]
        return sum([len(job.placement.cores_on(node)) for job in going if job.placement is not None])

    def _hold_host(self, node: NodeState, need: Resources, cores_coming: int) -> None:
        left = self._nodes.setdefault(node.node.name, NodeLeft())
        left.take(self.cores_free(node)[: max(0, need.cores - cores_coming)])
        left.host_memory_taken_bytes += max(0, min(need.host_memory_bytes, self.host_memory_free_bytes(node)))
        left.host_bandwidth_taken += max(0, min(need.host_bandwidth_bytes_per_s, self.host_bandwidth_free(node)))

    def hold_host(self, job: Job, node: NodeState) -> None:
        """Keep what a waiting job without GPUs books of a node, as far as it is free, from jobs started after this."""
        free, need = self.cpu_only_free(node), host_needs(job.effective, 0)
        left = self._nodes.setdefault(node.node.name, NodeLeft())
        cores = () if node.has_cpu_devices else tuple(self.cores_unbooked(node)[: need.cores])
        used = max(0, min(cores_used(job.effective), self.cores_unused(node)))
        memory_bytes = max(0, min(need.host_memory_bytes, free.host_memory_bytes))
        bandwidth = max(0, min(need.host_bandwidth_bytes_per_s, free.host_bandwidth_bytes_per_s))
        left.take(cores)
        left.cores_used += used
        left.host_memory_taken_bytes += memory_bytes
        left.host_bandwidth_taken += bandwidth
        self._hosts_held[job.spec.pool] = HostHeld(job, node, cores, used, memory_bytes, bandwidth)

    def release_host(self, pool: str) -> HostHeld | None:
        """Give back what `hold_host` keeps in a pool; None where that is nothing."""
        held = self._hosts_held.pop(pool, None)
        if held is not None:
            left = self._nodes[held.node.node.name]
            left.give(held.cores)
            left.cores_used -= held.cores_used
            left.host_memory_taken_bytes -= held.host_memory_bytes
            left.host_bandwidth_taken -= held.host_bandwidth
        return held

    def plan_again(self, pool: str, at_s: float) -> None:
        """Plan a pool again then; of several times the earliest counts."""
        known = self.replan.get(pool, ON_CHANGE)
        self.replan[pool] = known._replace(at_s=min(at_s, known.at_s))

    def plan_after_moves(self, pool: str) -> None:
        """Plan a pool again after what this plan changes, and whenever one of its jobs may give up its GPUs."""
        self.replan[pool] = self.replan.get(pool, ON_CHANGE)._replace(after_moves=True)

    def plan_while_idle(self, pool: str) -> None:
        """Plan a pool again whenever something changes there, even while no job waits."""
        self.replan[pool] = self.replan.get(pool, ON_CHANGE)._replace(while_idle=True)

    def plan_for_newcomers(self, pool: str, full_up_to: float = -inf) -> None:
        """No job that waits in a pool finds anything before something else happens than that jobs come.

        Nor do these, up to this priority.
        """
        known = self.replan.get(pool, ON_CHANGE)
        self.replan[pool] = known._replace(newcomers_only=True, full_up_to=full_up_to)

    def plan_for_news(self, pool: str, until_s: float) -> None:
        """Until then a plan of the pool may look at jobs that come and GPUs that change alone."""
        self.replan[pool] = self.replan.get(pool, ON_CHANGE)._replace(news_until_s=until_s)

    def go_on(self, pool: str) -> None:
        """Leave the rest of what there is to decide in a pool to the next step, which looks at as much."""
        known = self.replan.get(pool, ON_CHANGE)._replace(goes_on=True, after_moves=True)
        self.replan[pool] = known if self.view.news(pool) is not None else known._replace(news_until_s=-inf)

    @property
    def is_long(self) -> bool:
        """Whether as much was decided as one plan may; all of it is where it is only asked why jobs wait."""
        return len(self.actions) >= self.actions_max and self.view.explain is None

    @property
    def has_looked(self) -> bool:
        """Whether as much was looked at as one plan may; likewise."""
        return self.looks >= LOOKS_A_PLAN and self.view.explain is None

    def goes_on(self, pool: str) -> bool:
        """Whether that was said."""
        return self.replan.get(pool, ON_CHANGE).goes_on

    def settle(self, pool: str) -> None:
        """If no more is decided in this plan, the next one finds nothing to do in a pool because of it."""
        self.settled[pool] = len(self.actions)

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
        actions, holds = tuple(self.actions), self._holds() if self.held else NOTHING
        waits = self.waits, self.class_waits, self.rest
        for pool, count in self.settled.items():
            if count == len(actions):
                self.replan[pool] = self.replan.get(pool, ON_CHANGE)._replace(settled=True)
        return Plan(
            self.view.version, actions, *waits, self.replan, holds,
            serves_cpu_only=self.serves_cpu_only, reserved=self.reserved,
        )  # fmt: skip

    def _holds(self) -> dict[JobId, tuple[GpuId, ...]]:
        holds: dict[JobId, tuple[GpuId, ...]] = {}
        for gpu, job in self.held.items():
            holds[job] = (*holds.get(job, ()), gpu)
        return holds

    def _take(self, job: Job, loads: tuple[GpuLoad, ...]) -> tuple[Cores, tuple[tuple[str, Cores], ...]]:
        """Take what it books of each node by its ranks, beside what it has: cores of the first node, of the others."""
        if not books_host(job.effective) and not job.effective.cores_offered:
            return (), ()
        taken = []
        for name in dict.fromkeys([load.id.node for load in loads]):
            here = [load for load in loads if load.id.node == name]
            need = host_needs(job.effective, len(here))
            node = self.view.nodes[name]
            cores = self._pick_cores(node, here, need.cores) or self._offered(job, node, here)
            left = self._nodes.setdefault(name, NodeLeft())
            left.take(cores)
            had = host_booking(job, name)
            left.host_memory_taken_bytes += max(0, need.host_memory_bytes - had.memory_bytes)
            left.host_bandwidth_taken += max(0.0, need.host_bandwidth_bytes_per_s - had.bandwidth_bytes_per_s)
            taken.append((name, cores))
        return taken[0][1], tuple([(name, cores) for name, cores in taken[1:] if cores])

    def _offered(self, job: Job, node: NodeState, here: Sequence[GpuLoad]) -> Cores:
        """Of what a job would like the part of the free cores that its GPUs are of the idle ones: none waits for cores.

        So the next ones find theirs; what is left over is shared out while they run (`core.planners.tuning`). The cores
        that are its cpu devices are its own, those of others are no job's to have.
        """
        most = job.effective.part(job.effective.cores_offered, len(here))
        if not most:
            return ()
        own, outside = {load.id for load in here}, set(node.cores_outside)
        devices = {core for load in here for core in load.gpu.cores if core not in outside}
        free = self.cores_free(node)
        others = [core for core in free if core in outside]
        idle = [gpu for gpu in node.ids.values() if gpu not in own and self._is_idle(self.load(gpu))]
        count = min(most, max(1, len(others) * len(here) // (len(here) + len(idle)) + len(devices)))
        asked = job.effective.part(job.effective.cores_beside, len(here))  # what its owner did, where more is offered
        if count > asked:  # what is known to be of use, but not at the cost of those that have booked none
            left = len(others) - shared_part(node, self.view.jobs, self.load)
            count = max(asked, min(count, left * len(here) // (len(here) + len(idle)) + len(devices)), 1)
        near = {core for load in here for core in load.gpu.cores}
        others.sort(key=lambda core: (core not in near, core))
        return tuple(sorted([*[core for core in free if core in devices], *others][:count]))

    @staticmethod
    def _is_idle(load: GpuLoad) -> bool:
        return load.gpu.healthy and not load.bookings

    def _pick_cores(self, node: NodeState, loads: Iterable[GpuLoad], count: int) -> Cores:
        """Cores near the GPUs first, then others, lowest ids first."""
        if not count:
            return ()
        near = {core for load in loads for core in load.gpu.cores}
        ranked = sorted(self.cores_free(node), key=lambda core: (core not in near, core))
        return tuple(sorted(ranked[:count]))
