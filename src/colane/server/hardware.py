"""Whether a job could ever run on the nodes there are, were they empty; judged at submit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from colane.model.hardware import Node
from colane.model.job import JobSpec
from colane.server.problems import Problem, near_matches


class Shape(NamedTuple):
    """What one node has, so that a thousand like nodes are judged once."""

    gpus: tuple[tuple[str, int], ...]
    cores: int
    host_memory_bytes: int
    host_bandwidth: float
    """Infinite where it is not known."""

    def matching(self, gpu_type: str, memory_bytes: int) -> int:
        """GPUs of a type with at least that memory."""
        return sum(1 for kind, size in self.gpus if kind == gpu_type and size >= memory_bytes)


class Hardware:
    """The shapes of all registered nodes, by pool. Lost nodes count: they may come back."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        shapes: dict[str, Counter[Shape]] = {}
        for node in nodes:
            gpus = tuple(sorted((gpu.type, gpu.memory_bytes) for gpu in node.gpus))
            bandwidth = node.host_bandwidth_bytes_per_s or inf
            shape = Shape(gpus, len(node.cores), node.host_memory_bytes, bandwidth)
            shapes.setdefault(node.pool, Counter())[shape] += 1
        self._counts = shapes
        self._pools: Mapping[str, tuple[Shape, ...]] = {pool: tuple(sorted(of)) for pool, of in shapes.items()}

    def problem(self, spec: JobSpec) -> Problem | None:
        """Return why no node of the job's pool could ever run it; None when one could or none is known."""
        shapes = self._pools.get(spec.pool, ())
        apart = spec.anti_collocation and spec.gpus > 1
        if not shapes or (not apart and any(_fits(spec, shape) for shape in shapes)):
            return None
        if spec.multi_node:
            return _type_problem(spec, shapes) or _spread_problem(spec, self._counts[spec.pool])
        return (
            _type_problem(spec, shapes)
            or _count_problem(spec, shapes)
            or _memory_problem(spec, shapes)
            or _host_problem(spec, shapes)
            or Problem("gpus", f"no single node of pool {spec.pool} has all that is asked for at once")
        )


def _types(spec: JobSpec, shapes: Iterable[Shape]) -> list[str]:
    known = sorted({kind for shape in shapes for kind, _ in shape.gpus})
    return known if spec.gpu_type is None else [kind for kind in known if kind == spec.gpu_type]


def _fits(spec: JobSpec, shape: Shape) -> bool:
    need = spec.gpu_memory_bytes or 0
    return (
        any(shape.matching(kind, need) >= spec.gpus for kind in _types(spec, [shape]))
        and shape.cores >= spec.cores
        and shape.host_memory_bytes >= spec.host_memory_bytes
        and shape.host_bandwidth >= spec.host_bandwidth_bytes_per_s
    )


def _type_problem(spec: JobSpec, shapes: tuple[Shape, ...]) -> Problem | None:
    if spec.gpu_type is None or _types(spec, shapes):
        return None
    known = sorted({kind for shape in shapes for kind, _ in shape.gpus})
    hint = near_matches(spec.gpu_type, known)
    return Problem("gpu_type", f"unknown {spec.gpu_type!r}; {hint}known: {', '.join(known) or 'none'}")


def _count_problem(spec: JobSpec, shapes: tuple[Shape, ...]) -> Problem | None:
    counts = [Counter(kind for kind, _ in shape.gpus) for shape in shapes]
    most = max((count[kind] for count in counts for kind in _types(spec, shapes)), default=0)
    if spec.gpus <= most:
        return None
    what = f"{spec.gpu_type} GPUs" if spec.gpu_type else "GPUs of one type"
    return Problem("gpus", f"asks for {spec.gpus}, but no node of pool {spec.pool} has more than {most} {what}")


def _spread_problem(spec: JobSpec, counts: Mapping[Shape, int]) -> Problem | None:
    """A job over several nodes needs GPUs of one type in the whole pool, or as many nodes that have one."""
    need = spec.gpu_memory_bytes or 0
    ranks = 0
    for kind in _types(spec, counts):
        found = ((shape.matching(kind, need), count) for shape, count in counts.items())
        ranks = max(ranks, sum(count * (min(gpus, 1) if spec.anti_collocation else gpus) for gpus, count in found))
    if spec.gpus <= ranks:
        return None
    what = "nodes with a GPU" if spec.anti_collocation else "GPUs"
    return Problem("gpus", f"asks for {spec.gpus} over several nodes, but pool {spec.pool} has {ranks} such {what}")


def _memory_problem(spec: JobSpec, shapes: tuple[Shape, ...]) -> Problem | None:
    need = spec.gpu_memory_bytes or 0
    kinds = _types(spec, shapes)
    if any(shape.matching(kind, need) >= spec.gpus for shape in shapes for kind in kinds):
        return None
    largest = max(size for shape in shapes for kind, size in shape.gpus if kind in kinds)
    where = f"pool {spec.pool} has no node with {spec.gpus} such GPU{'s' if spec.gpus > 1 else ''}"
    return Problem("gpu_memory_bytes", f"asks for {need}, but {where}; the largest has {largest}")


def _host_problem(spec: JobSpec, shapes: tuple[Shape, ...]) -> Problem | None:
    cores = max(shape.cores for shape in shapes)
    if spec.cores > cores:
        return Problem("cores", f"asks for {spec.cores}, but no node of pool {spec.pool} has more than {cores}")
    memory = max(shape.host_memory_bytes for shape in shapes)
    if spec.host_memory_bytes > memory:
        text = f"asks for {spec.host_memory_bytes}, but no node of pool {spec.pool} has more than {memory}"
        return Problem("host_memory_bytes", text)
    rate = max(shape.host_bandwidth for shape in shapes)
    if spec.host_bandwidth_bytes_per_s > rate:
        text = f"asks for {spec.host_bandwidth_bytes_per_s}, but no node of pool {spec.pool} has more than {rate:.0f}"
        return Problem("host_bandwidth_bytes_per_s", text)
    return None
