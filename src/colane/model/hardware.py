"""The hardware: nodes, GPUs and how they are connected, and the devices that stand in for GPUs where there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

CPU_DEVICE_TYPE = "cpu"  # GPU type of a cpu device: a set of cores with a declared memory size

DEFAULT_POOL = "default"

DISTURBED_RATIO = 0.25
"""Of a device of which others use so much, what jobs do there says little of how they run and share."""

TO_HOST_BYTES_PER_S: Final = 10e9
"""What one process reaches over PCIe 3.0 x16 with pinned memory, less a fifth for the driver's own work."""

TIME_SLICE = "time-slice"  # the driver's own way of sharing a GPU: processes take turns, kernel after kernel

MPS = "mps"  # NVIDIA's service through which kernels of several processes run at once

EXCLUSIVE: Final = "exclusive"
"""A GPU in compute mode EXCLUSIVE_PROCESS, without MPS: the driver lets one process have it, and refuses others."""

AT_ONCE = frozenset({MPS, CPU_DEVICE_TYPE})
"""Ways of sharing in which jobs run at the same time. Of another, that of a newer agent among them, no gain is expected
before it was measured."""


BESIDE_OTHERS: Final = " beside others"
"""Ends the name of a way of sharing where others use the device, too: what is measured of it counts there alone."""


def is_instance_type(gpu_type: str) -> bool:
    """Whether devices of this type are parts of GPUs in MIG mode: NVML names them after the GPU and their size."""
    return " MIG " in gpu_type


def usual_sharing(gpu_type: str) -> str:
    """How jobs share a device where nothing was set up for it: `cpu` for cores, else `time-slice`."""
    return CPU_DEVICE_TYPE if gpu_type == CPU_DEVICE_TYPE else TIME_SLICE


class LinkKind(StrEnum):
    """The best way between two GPUs, in the words of `nvidia-smi topo -m`, nearest first."""

    SELF = "X"
    NVLINK = "NV"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"


class Link(NamedTuple):
    """The best way from one GPU to another."""

    kind: LinkKind  # what it crosses
    lanes: int = 0  # NVLinks bonded between the two; 0 for every other kind
    bandwidth_bytes_per_s: float = 0.0  # in one direction; 0 when unknown


@dataclass(frozen=True, slots=True)
class Topology:
    """The GPUs of one machine and the ways between them."""

    # `links[a][b]` is the way from GPU a to GPU b; square, symmetric in kind and lanes, SELF on the diagonal
    links: tuple[tuple[Link, ...], ...]
    sockets: tuple[int, ...]  # socket (NUMA node) of each GPU
    switches: tuple[int, ...] = ()  # PCIe switch of each GPU, -1 where it hangs on the socket itself
    nvswitch: bool = False  # whether NVLinks go through a switch, so that every pair is connected in the same way

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.sockets)


def flat_topology(sockets: Sequence[int]) -> Topology:
    """Connect devices through nothing but the host: every pair within a socket in the same way."""
    links = tuple(
        [
            tuple([_through_host(is_self=a == b, same_socket=one == two) for b, two in enumerate(sockets)])
            for a, one in enumerate(sockets)
        ]
    )
    return Topology(links, tuple(sockets), (-1,) * len(sockets))


def _through_host(*, is_self: bool, same_socket: bool) -> Link:
    if is_self:
        return Link(LinkKind.SELF)
    return Link(LinkKind.NODE if same_socket else LinkKind.SYS)


class GpuId(NamedTuple):
    """One GPU of one node; its natural order breaks ties."""

    node: str
    number: int

    def __str__(self) -> str:
        """`node/number`, as tables and reasons show it."""
        return f"{self.node}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A device jobs run on."""

    index: int  # position in its node, from 0
    uuid: str  # NVML's UUID (`GPU-...`), or `cpu-<index>` for a cpu device
    type: str  # product name as NVML gives it, or `cpu`
    memory_bytes: int  # usable memory: total less the driver's reserve, or as declared
    socket: int = 0  # NUMA node the GPU hangs on
    cores: tuple[int, ...] = ()  # near cores; for a cpu device, the cores that are the device
    healthy: bool = True  # False takes it out of scheduling
    foreign_bytes: int = 0  # memory held by processes that are not ours
    # part of it that work that is not ours uses now, 0..1; of a GPU, the time its kernels run
    others_ratio: float = 0.0
    # how jobs on it share it now: `time-slice`, `mps`, `cpu` or `exclusive` (not at all); empty is the usual way of its
    # type
    sharing: str = ""

    def __post_init__(self) -> None:
        """Fill in the usual way of sharing."""
        if not self.sharing:
            object.__setattr__(self, "sharing", usual_sharing(self.type))

    @property
    def capacity_bytes(self) -> int:
        """Memory our jobs may use: usable memory less what foreign processes hold."""
        return max(0, self.memory_bytes - self.foreign_bytes)

    @property
    def is_cpu_device(self) -> bool:
        """Whether this device is a set of CPU cores."""
        return self.type == CPU_DEVICE_TYPE

    @property
    def is_mig_instance(self) -> bool:
        """Whether this device is a part of a GPU in MIG mode: CUDA shows a process one of these only."""
        return is_instance_type(self.type) or self.uuid.startswith("MIG-")

    @property
    def is_disturbed(self) -> bool:
        """Whether others use so much of it that measurements on it mislead."""
        return self.others_ratio >= DISTURBED_RATIO

    @property
    def way(self) -> str:
        """How jobs on it share it now, as measured sets name it."""
        return self.sharing + BESIDE_OTHERS if self.is_disturbed else self.sharing


class Drain(NamedTuple):
    """Why a node takes no new jobs and lets those go that it has."""

    by: str  # the user who asked for it
    reason: str  # in that user's words; empty where none was given
    since_s: float  # when
    # when jobs that are still there are stopped; None lets those finish that cannot go on elsewhere
    deadline_s: float | None = None

    @property
    def because(self) -> str:
        """The user and the reason given, as reasons name them."""
        return f"by {self.by} ({self.reason})" if self.reason else f"by {self.by}"


class KeptFor(NamedTuple):
    """That a node is kept for jobs of some users for a time: others' that may not have ended do not start there."""

    name: str  # unique in the cluster; of all nodes that are reserved together
    users: tuple[str, ...]  # they
    from_s: float
    to_s: float
    by: str  # who asked for it

    @property
    def told(self) -> str:
        """As people are told."""
        return f"reservation {self.name} of {', '.join(self.users)}"


class Closed(NamedTuple):
    """That a node is taken out."""

    why: str  # as people are told
    until_s: float  # when it is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    name: str  # unique in the cluster
    gpus: tuple[Gpu, ...]  # its devices, by index
    cores: tuple[int, ...] = ()  # ids of the cores jobs may book
    host_memory_bytes: int = 0  # host memory jobs may book
    # bandwidth to host memory jobs may book; 0 where unknown: then it limits no job
    host_bandwidth_bytes_per_s: int = 0
    pool: str = DEFAULT_POOL  # only jobs of the same pool run here (a partition, a virtual cluster)
    address: str = ""  # base URL of its agent; empty in simulation
    agent_id: str = ""  # identity of the agent's state directory; a second agent of the same name is refused by it
    # how its GPUs are connected, by position in `gpus`; None when unknown: then sockets alone tell
    topology: Topology | None = None
    host_refusal: str = ""  # why GPU memory of jobs cannot be moved to its host; empty when it can, as far as is known
    drain: Drain | None = None  # an operator's drain; None where there is none. It outlives the agent
    notice: Drain | None = None  # its agent has notice that the machine is about to go; None where it has none
    # that it is taken out, as jobs fail on it; None while it is not. Jobs that run there go on
    closed: Closed | None = None
    reservations: tuple[KeptFor, ...] = ()  # in order of time; some may be over
    # parking a job there, and bringing it back, are believed to take so long each besides moving its memory
    park_s: float = 0.0
    to_host_bytes_per_s: float = TO_HOST_BYTES_PER_S  # how fast GPU memory is believed to move to its host and back

    @property
    def takes_jobs(self) -> bool:
        """Whether new jobs may come: it is neither drained nor taken out."""
        return self.drain is None and self.notice is None and self.closed is None

    @property
    def drains(self) -> tuple[Drain, ...]:
        """Why it takes no new jobs, its operator's word first; empty of a node that takes some."""
        return tuple([drain for drain in (self.drain, self.notice) if drain is not None])

    @property
    def leaves_s(self) -> float:
        """When jobs that are still there are stopped; infinite where they may finish."""
        return min([drain.deadline_s for drain in self.drains if drain.deadline_s is not None], default=inf)

    @property
    def cores_outside_devices(self) -> tuple[int, ...]:
        """Cores that are in none of its cpu devices: those a job without GPUs may book."""
        taken = {core for gpu in self.gpus if gpu.is_cpu_device for core in gpu.cores}
        return tuple([core for core in self.cores if core not in taken]) if taken else self.cores


NODES_MAX: Final = 10_000
_SPAN: Final = r"[0-9]+(-[0-9]+)?"
_NAMED: Final = re.compile(rf"(?P<name>[^,\[\]]+)(\[(?P<spans>{_SPAN}(,{_SPAN})*)\])?(?P<end>[^,\[\]]*)")


def nodes_named(text: str) -> list[str]:
    """Return the nodes of a list as `a,n[1-3,7]`.

    Raises:
        ValueError: It is none.
    """
    found = list[str]()
    for part in re.split(r",(?![^\[]*\])", text):
        match = _NAMED.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"must name nodes as n1,n[3-5], got {text[:60]!r}")
        for span in (match["spans"] or "").split(","):
            first, _, last = span.partition("-")
            numbers = range(int(first), int(last or first) + 1) if span else range(1)
            if len(numbers) > NODES_MAX:
                raise ValueError(f"must name at most {NODES_MAX} nodes, got {part[:60]!r}")
            found += [f"{match['name']}{number:0{len(first)}}{match['end']}" for number in numbers] if span else [part]
    return found
