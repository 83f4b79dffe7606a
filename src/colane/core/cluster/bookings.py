"""What jobs book of a node: a pure function of each job's state, and what a node has left over."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from colane.model.hardware import GpuId, Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.phases import Throttle
from colane.model.placement import Placement, Slot
from colane.model.progress import BandwidthSample
from colane.model.resources import cores_used

CORES_UNKNOWN: Final = 1_000_000  # free on a node that does not say which cores it has


@dataclass(slots=True)
class NodeState:
    """A node with what is booked on it."""

    node: Node
    order: int  # its number in the indexes, in order of registration
    generation: int  # version of the state in which its desired jobs last changed
    jobs: dict[JobId, None] = field(default_factory=dict)
    cores_booked: set[int] = field(default_factory=set)
    # cores that jobs have given up for a while, with how many have: jobs with GPUs leave them free
    cores_withheld: dict[int, int] = field(default_factory=dict)
    host_memory_booked_bytes: int = 0
    host_bandwidth_booked: int = 0
    free: dict[str, int] = field(default_factory=dict)  # free GPUs by type, one bit for each index
    ids: dict[int, GpuId] = field(default_factory=dict)  # its GPUs by index
    bandwidth: BandwidthSample | None = None  # which jobs were last seen to use the bandwidth of its memory
    cores_outside: tuple[int, ...] = ()  # cores that are in none of its cpu devices
    is_disturbed: bool = False  # whether others use any of its GPUs so much that measurements on it mislead
    whole: JobId | None = None  # the job that has it whole; None where none has
    cores_used: int = 0  # cores that its jobs without GPUs use, those that they share with others' included

    def __post_init__(self) -> None:
        self.describe(self.node)

    def describe(self, node: Node) -> None:
        """Take its new description."""
        self.node, self.cores_outside = node, node.cores_outside_devices
        self.is_disturbed = any(gpu.is_disturbed for gpu in node.gpus)

    @property
    def cores_free(self) -> int:
        """Cores that are not booked, and that no job will get back."""
        free = len(self.node.cores) - len(self.cores_booked)
        return free - len([core for core in self.cores_withheld if core not in self.cores_booked])

    @property
    def has_cpu_devices(self) -> bool:
        """Whether some of its cores are devices: jobs without GPUs share all its cores then, and book none."""
        return len(self.cores_outside) < len(self.node.cores)

    @property
    def cores_unused(self) -> int:
        """Cores that no job without GPUs uses."""
        return (len(self.node.cores) or CORES_UNKNOWN) - self.cores_used

    @property
    def host_memory_free_bytes(self) -> int:
        """Host memory that is not booked."""
        return self.node.host_memory_bytes - self.host_memory_booked_bytes

    @property
    def host_bandwidth_free(self) -> float:
        """Bytes per second to host memory that are not booked; infinite where the node does not say what it has."""
        has = self.node.host_bandwidth_bytes_per_s
        return has - self.host_bandwidth_booked if has else inf

    def has_room_for(self, job: Job) -> bool:
        """Whether what a job that is not on it would book is free, GPUs apart."""
        cores, memory_bytes, bandwidth = host_booking(job, self.node.name)
        fits = memory_bytes <= self.host_memory_free_bytes and bandwidth <= self.host_bandwidth_free
        return fits and self.cores_booked.isdisjoint(cores)

    def book(self, job: Job) -> None:
        """Enter a job that is not on it yet, GPUs apart."""
        booked = host_booking(job, self.node.name)
        self.jobs[job.id] = None
        self.whole = job.id if job.spec.whole_node else self.whole
        self.cores_used += 0 if job.spec.gpus else _cores_used_by(job)
        if booked is not NO_BOOKING:
            self.cores_booked.update(booked.cores)
            self.host_memory_booked_bytes += booked.memory_bytes
            self.host_bandwidth_booked += booked.bandwidth_bytes_per_s
        if job.throttle is not None:
            for core in job.throttle.withheld:
                self.cores_withheld[core] = self.cores_withheld.get(core, 0) + 1

    def release(self, job: Job) -> None:
        """Take a job off, as it was booked."""
        booked = host_booking(job, self.node.name)
        del self.jobs[job.id]
        self.whole = None if self.whole == job.id else self.whole
        self.cores_used -= 0 if job.spec.gpus else _cores_used_by(job)
        if booked is not NO_BOOKING:
            self.cores_booked.difference_update(booked.cores)
            self.host_memory_booked_bytes -= booked.memory_bytes
            self.host_bandwidth_booked -= booked.bandwidth_bytes_per_s
        if job.throttle is not None:
            self._give_back(job.throttle.withheld)

    def _give_back(self, cores: Iterable[int]) -> None:
        """Fewer jobs want these cores back."""
        for core in cores:
            left = self.cores_withheld.pop(core) - 1
            if left:
                self.cores_withheld[core] = left


@dataclass(slots=True)
class NodeLeft:
    """What decisions of a draft change of a node's cores and host memory."""

    cores_taken: set[int] = field(default_factory=set)  # cores that were free
    cores_given: set[int] = field(default_factory=set)  # cores that were booked
    host_memory_taken_bytes: int = 0  # host memory
    host_bandwidth_taken: float = 0.0  # bytes per second to it
    cores_used: int = 0  # cores for jobs without GPUs

    def take(self, cores: Iterable[int]) -> None:
        """These free cores are booked."""
        for core in cores:
            if core in self.cores_given:
                self.cores_given.remove(core)
            else:
                self.cores_taken.add(core)

    def give(self, cores: Iterable[int]) -> None:
        """These booked cores are free."""
        for core in cores:
            if core in self.cores_taken:
                self.cores_taken.remove(core)
            else:
                self.cores_given.add(core)

    def is_free(self, core: int, booked: Container[int]) -> bool:
        """Whether a core is free, given which were booked before."""
        return core in self.cores_given or (core not in booked and core not in self.cores_taken)


class HostBooking(NamedTuple):
    """What a job books of one node besides GPUs."""

    cores: tuple[int, ...]
    memory_bytes: int
    bandwidth_bytes_per_s: int


NO_BOOKING: Final = HostBooking((), 0, 0)  # of most jobs: they book GPUs alone


def host_booking(job: Job, node: str) -> HostBooking:
    """What a job books of one of its nodes besides GPUs, its GPU memory that lies there included.

    A parked job off its GPUs uses neither cores nor bandwidth; one that is being resized has what it had and what it
    is to have.
    """
    if job.placement is None:
        return NO_BOOKING
    booked = NO_BOOKING if node in job.run.ended_on else _booked_by(job, job.placement, node)
    if job.on_host is not None and job.parking is not None:
        return HostBooking((), booked.memory_bytes + job.on_host.size_bytes, 0)
    if job.leaving is not None and job.leaving.resizes_to is not None:
        after = _booked_by(job, job.leaving.resizes_to, node)
        cores = tuple({*booked.cores, *after.cores})
        return HostBooking(cores, max(booked.memory_bytes, after.memory_bytes), max(booked[2], after[2]))
    if job.on_host is None:
        return booked
    return booked._replace(memory_bytes=booked.memory_bytes + job.on_host.size_bytes)


def _booked_by(job: Job, placement: Placement, node: str) -> HostBooking:
    """By one placement; most jobs book nothing."""
    spec, cores = job.effective, placement.cores_on(node)
    if not spec.host_memory_bytes and not spec.host_bandwidth_bytes_per_s:
        return HostBooking(cores, 0, 0) if cores else NO_BOOKING
    ranks = len(placement.slots_on(node))
    memory_bytes = spec.part(spec.host_memory_bytes, ranks)
    return HostBooking(cores, memory_bytes, spec.part(spec.host_bandwidth_bytes_per_s, ranks))


def _cores_used_by(job: Job) -> int:
    """As many as a job without GPUs has or, where it shares them, may use."""
    own = job.placement.cores if job.placement else ()
    return len(own) or cores_used(job.spec)


def throttled(job: Job, throttle: Throttle | None) -> Placement:
    """Where a job without GPUs is once it is held back so, or let go; one that books no cores books none by it."""
    assert job.placement is not None  # noqa: S101 - for the type checker
    if not job.placement.cores:
        return job.placement
    cores = (
        (*job.placement.cores, *(job.throttle.withheld if job.throttle else ())) if throttle is None else throttle.cores
    )
    return replace(job.placement, cores=tuple(sorted(cores)))


def books_host(spec: JobSpec) -> bool:
    """Whether a job books anything of its nodes besides GPUs."""
    return bool(spec.cores or spec.host_memory_bytes or spec.host_bandwidth_bytes_per_s)


def nodes_booked(job: Job) -> tuple[str, ...]:
    """Nodes a job books something of: those it has a part on, and those it is to go on with."""
    if job.placement is None:
        return ()
    gone, to = job.run.ended_on, None if job.leaving is None else job.leaving.resizes_to
    held = tuple([node for node in job.placement.nodes if node not in gone]) if gone else job.placement.nodes
    return held if to is None else tuple(dict.fromkeys((*held, *to.nodes)))


def slots_booked(job: Job, node: str) -> tuple[Slot, ...]:
    """GPUs of a node that a job books, with its lane on each: none while its memory is on the host."""
    if job.placement is None or job.on_host is not None:
        return ()
    slots = () if node in job.run.ended_on else job.placement.slots_on(node)
    if job.leaving is None or job.leaving.resizes_to is None:
        return slots
    own = {slot.gpu for slot in slots}
    return (*slots, *[slot for slot in job.leaving.resizes_to.slots_on(node) if slot.gpu not in own])
