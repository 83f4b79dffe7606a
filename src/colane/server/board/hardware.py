"""Whether a job could ever run on the nodes there are, were they empty; judged at submit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from colane.model.hardware import Node
from colane.model.inventory import Inventory, Lack, Shortfall
from colane.model.job import JobSpec
from colane.model.problem import Problem
from colane.model.words import count
from colane.server.ground.problems import near_matches

_FIELDS = {
    Lack.CORES: "cores",
    Lack.HOST_MEMORY: "host_memory_bytes",
    Lack.HOST_BANDWIDTH: "host_bandwidth_bytes_per_s",
}


class Hardware:
    """What all registered nodes have. Lost nodes count: they may come back."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        known = tuple(nodes)
        self._inventory = Inventory(known)
        self.pools = sorted({node.pool for node in known})
        self._names = {pool: sorted(node.name for node in known if node.pool == pool) for pool in self.pools}

    def sized(self, spec: JobSpec) -> JobSpec:
        """Where no node is known, the job as it is."""
        return self._inventory.sized(spec) if self._inventory.gpu_types(spec.pool) else spec

    def problem(self, spec: JobSpec) -> Problem | None:
        """Return why no node of the job's pool could ever run it, in any size; None when one could or none is known."""
        if self.pools and spec.pool not in self.pools:
            hint = near_matches(spec.pool, self.pools)
            return Problem("pool", f"unknown {spec.pool!r}; {hint}known: {', '.join(self.pools)}")
        spec = spec if spec.gpus == spec.gpus_min else replace(spec, gpus=spec.gpus_min)
        shortfall = self._inventory.shortfall(spec)
        if shortfall is not None and shortfall.lack is Lack.NODES and spec.nodes and spec.pool in self._names:
            return Problem("nodes", f"must be some of pool {spec.pool}: {', '.join(self._names[spec.pool])}")
        if shortfall is None or shortfall.lack is Lack.NODES:
            return None
        return self._problem(spec, shortfall)

    def _problem(self, spec: JobSpec, shortfall: Shortfall) -> Problem:
        lack, need, most = shortfall
        if lack is Lack.GPU_TYPE:
            known = self._inventory.gpu_types(spec.pool)
            hint = near_matches(spec.gpu_type or "", known)
            return Problem("gpu_type", f"unknown {spec.gpu_type!r}; {hint}known: {', '.join(known) or 'none'}")
        if lack is Lack.GPU_MEMORY:
            where = f"pool {spec.pool} has no node with {count(spec.gpus, 'such GPU')}"
            return Problem("gpu_memory_bytes", f"asks for {need}, but {where}; the largest has {most}")
        if lack in _FIELDS:
            text = f"asks for {need}, but no node of pool {spec.pool} has more than {most:.0f}"
            return Problem(_FIELDS[lack], f"{text}; ask for no more than that")
        return Problem("gpus", _over_nodes(spec, shortfall) if spec.multi_node else _on_a_node(spec, shortfall))


def _on_a_node(spec: JobSpec, shortfall: Shortfall) -> str:
    if shortfall.lack is Lack.AT_ONCE:
        return f"no single node of pool {spec.pool} has all that is asked for at once"
    most = count(shortfall.most, f"{spec.gpu_type} GPU" if spec.gpu_type else "GPU")
    of_one = "" if spec.gpu_type else " of one type"
    least = " at least" if spec.sizes else ""
    return f"asks for {spec.gpus}{least}, but no node of pool {spec.pool} has more than {most}{of_one}"


def _over_nodes(spec: JobSpec, shortfall: Shortfall) -> str:
    beside = " with the memory and the cores its ranks need" if shortfall.lack is Lack.AT_ONCE else ""
    asked = f"asks for {spec.gpus}{' at least' if spec.sizes else ''} over several nodes"
    each = spec.gpus_per_node
    if not each:
        return f"{asked}, but pool {spec.pool} has {count(shortfall.most, 'such GPU')}{beside}"
    nodes, with_them = count(int(shortfall.most) // each, "node"), count(each, "such GPU")
    return f"{asked}, {each} on each, but pool {spec.pool} has {nodes} with {with_them}{beside}"
