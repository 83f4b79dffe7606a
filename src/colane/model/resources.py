"""What jobs need, nodes have and groups are guaranteed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, final

from colane.model.hardware import Node, is_instance_type
from colane.model.job import JobSpec
from colane.model.job_spec import is_among
from colane.model.profile import Memory


@final
@dataclass(unsafe_hash=True, slots=True)
class Resources:
    """Amounts that are needed or had; they are added, subtracted and compared each for itself."""

    gpus: Final[int] = 0  # GPUs
    cores: Final[int] = 0  # cores
    host_memory_bytes: Final[int] = 0  # host memory
    # bandwidth to host memory; infinite where a node does not say what it has
    host_bandwidth_bytes_per_s: Final[float] = 0
    gpu_memory_bytes: Final[int] = 0  # memory of each of the GPUs: of a sum the larger, and not less by a difference

    def __add__(self, other: Resources) -> Resources:
        """Both together."""
        return Resources(
            self.gpus + other.gpus,
            self.cores + other.cores,
            self.host_memory_bytes + other.host_memory_bytes,
            self.host_bandwidth_bytes_per_s + other.host_bandwidth_bytes_per_s,
            max(self.gpu_memory_bytes, other.gpu_memory_bytes),
        )

    def __sub__(self, other: Resources) -> Resources:
        """What is left when the other is taken away; less than nothing where that is too much."""
        return Resources(
            self.gpus - other.gpus,
            self.cores - other.cores,
            self.host_memory_bytes - other.host_memory_bytes,
            self.host_bandwidth_bytes_per_s - other.host_bandwidth_bytes_per_s,
            self.gpu_memory_bytes,
        )

    def __le__(self, other: Resources) -> bool:
        """Whether the other has enough of each; of what is not needed there is enough where more is booked than is."""
        return (
            (self.gpus <= other.gpus or self.gpus <= 0)
            and (self.cores <= other.cores or self.cores <= 0)
            and (self.host_memory_bytes <= other.host_memory_bytes or self.host_memory_bytes <= 0)
            and (
                self.host_bandwidth_bytes_per_s <= other.host_bandwidth_bytes_per_s
                or self.host_bandwidth_bytes_per_s <= 0
            )
            and self.gpu_memory_bytes <= other.gpu_memory_bytes
        )


def host_needs(spec: JobSpec, ranks: int) -> Resources:
    """What a job books of the host where so many of its ranks lie: cores, host memory and its bandwidth."""
    bandwidth = spec.part(spec.host_bandwidth_bytes_per_s, ranks)
    return Resources(0, spec.part(spec.cores, ranks), spec.part(spec.host_memory_bytes, ranks), bandwidth)


def cores_used(spec: JobSpec) -> int:
    """Cores that a job without GPUs uses: one where it asks for none; 0 of one with GPUs."""
    return 0 if spec.gpus else max(1, spec.cores)


def needs(spec: JobSpec, ranks: int) -> Resources:
    """All a job books of a node where so many of its ranks lie; GPU memory as declared, 0 where it is not."""
    return Resources(ranks, gpu_memory_bytes=spec.gpu_memory_bytes or 0) + host_needs(spec, ranks)


def host_capacity(node: Node) -> Resources:
    """What an empty node has besides GPUs."""
    return Resources(0, len(node.cores), node.host_memory_bytes, node.host_bandwidth_bytes_per_s or inf)


def capacity(node: Node, gpu_type: str | None = None, memory_bytes: int = 0, *, usable_only: bool = False) -> Resources:
    """What an empty node has, of its GPUs those of a type (None: any) with at least that memory each.

    MIG instances count as one: CUDA shows a process no more than one of them.
    """
    gpus = instances = 0
    for gpu in node.gpus:
        suits = gpu_type in {None, gpu.type} and gpu.memory_bytes >= memory_bytes
        if suits and (not usable_only or (gpu.healthy and node.takes_jobs)):
            if gpu.is_mig_instance:
                instances = 1
            else:
                gpus += 1
    return Resources(gpus + instances, gpu_memory_bytes=memory_bytes) + host_capacity(node)


def may_be_instances(spec: JobSpec) -> bool:
    """Whether a job may be given MIG instances: CUDA shows a process one of them, so never two on one node."""
    return spec.gpus <= 1 or spec.gpus_per_node == 1


def ranks_held(node: Node, spec: JobSpec, gpu_type: str, *, usable_only: bool = False) -> int:
    """How many ranks of a job at most an empty node could hold at once on GPUs of that type."""
    if (is_instance_type(gpu_type) and not may_be_instances(spec)) or not is_among(spec.nodes, node.name):
        return 0
    has = capacity(node, gpu_type, spec.gpu_memory_bytes or 0, usable_only=usable_only)
    ranks = spec.ranks_of(has.gpus)
    while ranks and not needs(spec, ranks) <= has:
        ranks = spec.ranks_of(ranks - 1)
    return ranks


class Guarantee(NamedTuple):
    """GPUs that a group gets before any other that has more than its own."""

    group: str  # its name
    gpus: int  # so many, of all pools together
    members: frozenset[str]  # users of whose jobs they are


# -- memory of one GPU that jobs share: it is safe while sum of P + sum of lane sizes <= capacity (paper B, section 3.3)
# A lane is as large as the largest ephemeral need in it, so at least one job of every lane can always proceed.


def needed_bytes(members: Iterable[tuple[int, Memory]]) -> int:
    """Memory that jobs, given as (lane, memory), need together: sum of P + sum over lanes of the largest E."""
    persistent = 0
    lanes: dict[int, int] = {}
    for lane, memory in members:
        persistent += memory.persistent_bytes
        lanes[lane] = max(lanes.get(lane, 0), memory.ephemeral_bytes)
    return persistent + sum(lanes.values())


def has_room_for_caches(members: Iterable[tuple[int, Memory]], capacity_bytes: int) -> bool:
    """Whether every job, given as (lane, memory), may keep what it needed within a step while it waits for its turn.

    The safety condition counts the largest E of a lane only, for one job of it runs at a time. A framework that keeps
    freed memory for its next step holds its own E at all times; where these do not all fit, it must give it back.
    """
    return sum(memory.persistent_bytes + memory.ephemeral_bytes for _, memory in members) <= capacity_bytes


def is_safe(members: Iterable[tuple[int, Memory]], capacity_bytes: int) -> bool:
    """Whether jobs, given as (lane, memory), can share a GPU of that capacity."""
    return needed_bytes(members) <= capacity_bytes
