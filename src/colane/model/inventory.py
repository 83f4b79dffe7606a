"""Whether nodes could ever hold a job, if nothing else ran on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple

from colane.model.hardware import Node, is_instance_type
from colane.model.job import JobSpec
from colane.model.job_spec import is_among
from colane.model.resources import (
    Resources,
    capacity,
    host_capacity,
    host_needs,
    may_be_instances,
    ranks_held,
)


class Lack(StrEnum):
    """What keeps a job off nodes even when they are empty."""

    NODES = "nodes"  # there is none in its pool
    GPU_TYPE = "gpu-type"
    GPUS = "gpus"  # on one node; over all nodes together (or nodes with one) for a job that may span several
    GPU_MEMORY = "gpu-memory"  # of as many GPUs of one node as it asks for
    CORES = "cores"
    HOST_MEMORY = "host-memory"
    HOST_BANDWIDTH = "host-bandwidth"
    AT_ONCE = "at-once"  # each need alone could be met, all together cannot


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
        self._nodes = tuple(nodes)
        for node in self._nodes:
            alike = self._pools.setdefault(node.pool, {})
            gpus = tuple(sorted(Counter((gpu.type, gpu.memory_bytes) for gpu in node.gpus).items()))
            key = (gpus, len(node.cores), node.host_memory_bytes, node.host_bandwidth_bytes_per_s)
            alike[key] = (node, alike[key][1] + 1 if key in alike else 1)

    def gpu_types(self, pool: str) -> list[str]:
        """GPU types of a pool, in order of name."""
        return sorted({gpu.type for node, _ in self._alike(pool) for gpu in node.gpus})

    def shortfall(self, spec: JobSpec) -> Shortfall | None:
        """Why the nodes of a job's pool could never hold it, one of them or several together; None when they could."""
        alike = self._alike(spec.pool, spec.nodes)
        if not alike:
            return Shortfall(Lack.NODES)
        nodes = [node for node, _ in alike]
        if not spec.gpus:
            each = [host_capacity(node) for node in nodes]
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

    def _alike(self, pool: str, among: str = "") -> list[tuple[Node, int]]:
        if among:
            return [(node, 1) for node in self._nodes if node.pool == pool and is_among(among, node.name)]
        return list(self._pools.get(pool, {}).values())


def _over_nodes(spec: JobSpec, types: Iterable[str], alike: list[tuple[Node, int]]) -> Shortfall | None:
    held = gpus = 0
    for kind in types:
        held = max(held, sum(count * ranks_held(node, spec, kind) for node, count in alike))
        if is_instance_type(kind) and not may_be_instances(spec):
            gpus = max(gpus, 1)
            continue
        each = [(capacity(node, kind).gpus, count) for node, count in alike]
        gpus = max(gpus, sum(count * (spec.ranks_of(has) if spec.gpus_per_node else has) for has, count in each))
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
