"""Counts GPUs in use, GPUs left idle beside a queue, and jobs waiting, at the cost of what changes."""

from __future__ import annotations

from collections.abc import Iterable

from colane.lab.simulate.ledger import ClusterTimeline
from colane.lab.simulate.process import GpuUse, PoolUse
from colane.model.hardware import GpuId, Node


class Meter:
    """Keeps the totals that the curve is made of.

    Utilisation (busy fraction x efficiency): a job keeps its GPU busy by its occupancy x its speed now / its speed
    alone; a GPU's use is the sum over its jobs, at most 1. Where occupancy is unknown, a GPU with a stepping job is in
    full use.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.gpus: dict[GpuId, GpuUse] = {}
        self._pools: dict[str, PoolUse] = {}
        self._pool_of: dict[str, PoolUse] = {}
        self._active = 0
        self._utilized = 0.0
        self._stranded = 0
        self.waiting = 0
        for node in nodes:
            pool = self._pools.setdefault(node.pool, PoolUse())
            pool.gpus += len(node.gpus)
            self._pool_of[node.name] = pool

    def use(self, gpu: GpuId) -> GpuUse:
        """One GPU."""
        use = self.gpus.get(gpu)
        if use is None:
            use = self.gpus[gpu] = GpuUse(gpu, self._pool_of[gpu.node])
        return use

    def queue(self, pool: str, change: int, *, for_gpus: bool = True) -> None:
        """So many jobs more (or less) wait for a pool; no GPU is idle because of those without GPUs."""
        self.waiting += change
        if not for_gpus:
            return
        entry = self._pools.get(pool)
        if entry is None:
            entry = self._pools[pool] = PoolUse()
        was, entry.waiting = entry.waiting, entry.waiting + change
        if not was or not entry.waiting:
            idle = entry.gpus - entry.active
            self._stranded += idle if entry.waiting else -idle

    def resized(self, node: Node, change: int) -> None:
        """A node is back (1) or gone (-1): GPUs that are not there are not idle."""
        pool = self._pool_of[node.name]
        pool.gpus += change * len(node.gpus)
        self._stranded += change * len(node.gpus) if pool.waiting else 0

    def refresh(self, use: GpuUse) -> None:
        """The jobs or the speeds on a GPU changed."""
        use.epoch += 1
        active = bool(use.processes)
        if active is not use.is_active:
            use.is_active, change = active, 1 if active else -1
            use.pool.active += change
            self._active += change
            self._stranded -= change if use.pool.waiting else 0
        before, use.utilized = use.utilized, self._use_of(use) if active else 0.0
        self._utilized += use.utilized - before

    def record(self, curve: ClusterTimeline, at_s: float, running: int) -> None:
        """Append the present totals."""
        curve.add(at_s, self._active, self._utilized, self._stranded, self.waiting, running)

    @staticmethod
    def _use_of(use: GpuUse) -> float:
        total = 0.0
        for process in use.processes.values():
            if not process.is_stepping:
                continue
            ratio, alone = process.occupancy_ratio, process.alone_steps_per_s
            if ratio is None:
                return 1.0
            total += ratio * process.steps_per_s / alone if alone > 0 else 0.0
        return min(1.0, total)
