"""What jobs need and nodes have, as one type, and the one answer to "could these nodes ever hold this job"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple, final

from colane.model.hardware import Node, is_instance_type
from colane.model.job import JobSpec


@final
@dataclass(unsafe_hash=True, slots=True)
class Resources:
    """Amounts that are needed or had; they are added, subtracted and compared each for itself.

    Attributes:
        gpus: GPUs.
        cores: Cores.
        host_memory_bytes: Host memory.
        host_bandwidth_bytes_per_s: Bandwidth to host memory; infinite where a node does not say what it has.
        gpu_memory_bytes: Memory of each of the GPUs: of a sum the larger, and not less by a difference.
    """

    gpus: Final[int] = 0
    cores: Final[int] = 0
    host_memory_bytes: Final[int] = 0
    host_bandwidth_bytes_per_s: Final[float] = 0
    gpu_memory_bytes: Final[int] = 0

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
        """Whether the other has enough of each."""
        return (
            self.gpus <= other.gpus
            and self.cores <= other.cores
            and self.host_memory_bytes <= other.host_memory_bytes
            and self.host_bandwidth_bytes_per_s <= other.host_bandwidth_bytes_per_s
            and self.gpu_memory_bytes <= other.gpu_memory_bytes
        )


def host_needs(spec: JobSpec, ranks: int) -> Resources:
    """What a job books of the host where so many of its ranks lie: cores, host memory and its bandwidth."""
    bandwidth = spec.part(spec.host_bandwidth_bytes_per_s, ranks)
    return Resources(0, spec.part(spec.cores, ranks), spec.part(spec.host_memory_bytes, ranks), bandwidth)


def needs(spec: JobSpec, ranks: int) -> Resources:
    """All a job books of a node where so many of its ranks lie; GPU memory as declared, 0 where it is not."""
    return Resources(ranks, gpu_memory_bytes=spec.gpu_memory_bytes or 0) + host_needs(spec, ranks)


def host_capacity(node: Node) -> Resources:
    """What an empty node has besides GPUs."""
    return Resources(0, len(node.cores), node.host_memory_bytes, node.host_bandwidth_bytes_per_s or inf)


def cpu_only_capacity(node: Node) -> Resources:
    """What an empty node has for jobs without GPUs: not the cores that are its cpu devices."""
    has = host_capacity(node)
    outside = len(node.cores_outside_devices)
    return Resources(0, outside, has.host_memory_bytes, has.host_bandwidth_bytes_per_s)


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
    return spec.gpus <= 1 or spec.anti_collocation


def ranks_held(node: Node, spec: JobSpec, gpu_type: str, *, usable_only: bool = False) -> int:
    """How many ranks of a job at most an empty node could hold at once on GPUs of that type."""
    if is_instance_type(gpu_type) and not may_be_instances(spec):
        return 0
    has = capacity(node, gpu_type, spec.gpu_memory_bytes or 0, usable_only=usable_only)
    ranks = min(has.gpus, 1 if spec.anti_collocation else spec.gpus)
    while ranks and not needs(spec, ranks) <= has:
        ranks -= 1
    return ranks


class Lack(StrEnum):
    """What keeps a job off nodes even when they are empty."""

    NODES = "nodes"
    """There is none in its pool."""
    GPU_TYPE = "gpu-type"
    GPUS = "gpus"
    """On one node; over all nodes together (or nodes with one) for a job that may span several."""
    GPU_MEMORY = "gpu-memory"
    """Of as many GPUs of one node as it asks for."""
    CORES = "cores"
    HOST_MEMORY = "host-memory"
    HOST_BANDWIDTH = "host-bandwidth"
    AT_ONCE = "at-once"
    """Each need alone could be met, all together cannot."""


class Shortfall(NamedTuple):
    """What a job lacks, how much of it it needs, and the most there is for it."""

    lack: Lack
    need: float = 0
    most: float = 0


class Inventory:
    """What nodes have when empty, by pool; equal nodes are judged once. Lost nodes count: they may come back.

    Args:
        nodes: All there are.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._pools: dict[str, dict[tuple[object, ...], tuple[Node, int]]] = {}
        for node in nodes:
            alike = self._pools.setdefault(node.pool, {})
            key = _key(node)
            alike[key] = (node, alike[key][1] + 1 if key in alike else 1)

    def gpu_types(self, pool: str) -> list[str]:
        """GPU types of a pool, in order of name."""
        return sorted({gpu.type for node, _ in self._alike(pool) for gpu in node.gpus})

    def shortfall(self, spec: JobSpec) -> Shortfall | None:
        """Why the nodes of a job's pool could never hold it, one of them or several together; None when they could."""
        alike = self._alike(spec.pool)
        if not alike:
            return Shortfall(Lack.NODES)
        nodes = [node for node, _ in alike]
        if not spec.gpus:
            each = [cpu_only_capacity(node) for node in nodes]
            has_all = any(host_needs(spec, 0) <= has for has in each)
            return None if has_all else _host_shortfall(spec, each) or Shortfall(Lack.AT_ONCE)
        types = [kind for kind in self.gpu_types(spec.pool) if spec.gpu_type in {None, kind}]
        if not types:
            return Shortfall(Lack.GPUS if spec.gpu_type is None else Lack.GPU_TYPE, spec.gpus)
        if spec.multi_node:
            return _over_nodes(spec, types, alike)
        if any(ranks_held(node, spec, kind) >= spec.gpus for node in nodes for kind in types):
            return None
        each = [host_capacity(node) for node in nodes]
        return _gpu_shortfall(spec, types, nodes) or _host_shortfall(spec, each) or Shortfall(Lack.AT_ONCE)

    def sized(self, spec: JobSpec) -> JobSpec:
        """A job of several sizes with the largest that could ever run as its best; its smallest where none could."""
        return spec.at(self._largest_size(spec) or spec.gpus_min) if spec.sizes else spec

    def _largest_size(self, spec: JobSpec) -> int | None:
        """The most GPUs that a job of several sizes could ever be given; None when it could never run."""
        # What can hold a job of some size can hold a smaller one, so half of the rest is left out each time.
        fitting, beyond = 0, len(spec.sizes)
        while fitting < beyond:
            middle = (fitting + beyond) // 2
            if self.shortfall(replace(spec, gpus=spec.sizes[middle])) is None:
                fitting = middle + 1
            else:
                beyond = middle
        return spec.sizes[fitting - 1] if fitting else None

    def _alike(self, pool: str) -> list[tuple[Node, int]]:
        return list(self._pools.get(pool, {}).values())


def _key(node: Node) -> tuple[object, ...]:
    gpus = tuple(sorted(Counter((gpu.type, gpu.memory_bytes) for gpu in node.gpus).items()))
    outside = len(node.cores_outside_devices)
    return gpus, len(node.cores), outside, node.host_memory_bytes, node.host_bandwidth_bytes_per_s


def _over_nodes(spec: JobSpec, types: Iterable[str], alike: list[tuple[Node, int]]) -> Shortfall | None:
    held = gpus = 0
    for kind in types:
        held = max(held, sum(count * ranks_held(node, spec, kind) for node, count in alike))
        if is_instance_type(kind) and not may_be_instances(spec):
            gpus = max(gpus, 1)
            continue
        each = [(capacity(node, kind).gpus, count) for node, count in alike]
        gpus = max(gpus, sum(count * (min(has, 1) if spec.anti_collocation else has) for has, count in each))
    if spec.gpus <= held:
        return None
    return Shortfall(Lack.GPUS, spec.gpus, gpus) if spec.gpus > gpus else Shortfall(Lack.AT_ONCE, spec.gpus, held)


def _gpu_shortfall(spec: JobSpec, types: Iterable[str], nodes: list[Node]) -> Shortfall | None:
    need, kinds = spec.gpu_memory_bytes or 0, list(types)
    most = max(capacity(node, kind).gpus for node in nodes for kind in kinds)
    if spec.gpus > most:
        return Shortfall(Lack.GPUS, spec.gpus, most)
    if any(capacity(node, kind, need).gpus >= spec.gpus for node in nodes for kind in kinds):
        return None
    largest = max(gpu.memory_bytes for node in nodes for gpu in node.gpus if gpu.type in kinds)
    return Shortfall(Lack.GPU_MEMORY, need, largest)


_HOST: Final[Mapping[Lack, str]] = {
    Lack.CORES: "cores",
    Lack.HOST_MEMORY: "host_memory_bytes",
    Lack.HOST_BANDWIDTH: "host_bandwidth_bytes_per_s",
}


def _host_shortfall(spec: JobSpec, each: list[Resources]) -> Shortfall | None:
    need = host_needs(spec, spec.gpus)
    for lack, name in _HOST.items():
        most = max(getattr(has, name) for has in each)
        if getattr(need, name) > most:
            return Shortfall(lack, getattr(need, name), most)
    return None
