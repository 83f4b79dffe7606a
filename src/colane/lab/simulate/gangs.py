"""Where a job runs, and how fast one goes whose ranks lie on several nodes: at the pace of its slowest rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from colane.core.cluster.load import GpuLoad
from colane.lab.simulate.world import Running, Startup, World
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId
from colane.model.placement import Placement
from colane.model.profile import Memory


def running_at(job: TraceJob, placement: Placement, loads: Mapping[GpuId, GpuLoad]) -> Running:
    """A job where it was placed; of one over several nodes also the part on each."""
    gpus, cores = placement.gpus, placement.cores_booked
    if not gpus:
        return Running(job, "", (), (), "", (), cores, placement.node)
    first = loads[gpus[0]].gpu
    if len(gpus) == 1:
        return Running(job, first.type, gpus, (first.socket,), first.sharing, (), cores)
    if len(placement.nodes) == 1:
        return Running(job, first.type, gpus, _sockets(gpus, loads), first.sharing, (), cores)
    by_node = [tuple(group) for _, group in groupby(gpus, key=lambda gpu: gpu.node)]
    booked = [len(placement.cores_on(here[0].node)) for here in by_node]
    parts = tuple([
        Running(job, first.type, here, _sockets(here, loads), first.sharing, (), many)
        for here, many in zip(by_node, booked, strict=True)
    ])  # fmt: skip
    sockets = tuple(range(sum(len(part.sockets) for part in parts)))
    return Running(job, first.type, gpus, sockets, first.sharing, parts, cores)


def _sockets(gpus: Sequence[GpuId], loads: Mapping[GpuId, GpuLoad]) -> tuple[int, ...]:
    return tuple(sorted({loads[gpu].gpu.socket for gpu in gpus}))


class GangWorld:
    """A world whose jobs may lie on several nodes.

    Alone, such a job goes as the world says of its place. With co-runners all its ranks wait for the slowest: it is
    slowed as on the node where it is slowed most. Others meet only the part of it that lies on their node. The world
    given says the truth about one node, and about jobs alone.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.name = world.name
        self.counts_steps = world.counts_steps
        self.scope = world.scope

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:
        """As the world says."""
        return self._world.refusal(job, gpu_types)

    def work_steps(self, job: TraceJob) -> float:
        """As the world says."""
        return self._world.work_steps(job)

    def startup(self, job: TraceJob) -> Startup:
        """As the world says."""
        return self._world.startup(job)

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """As the world says."""
        return self._world.memory(job, gpu_type)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:
        """As the world says."""
        return self._world.occupancy_ratio(job, gpu_type, cores)

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """The pace of a job's slowest rank."""
        if not me.parts:
            return self._world.steps_per_s(me, _on(me.gpus[0].node, others) if others else ())
        alone = self._world.steps_per_s(me, ())
        return alone * min([self._kept(part, others) for part in me.parts]) if others and alone else alone

    def _kept(self, part: Running, others: Sequence[Running]) -> float:
        """Speed of the ranks on one node beside others there / without them."""
        near = _on(part.gpus[0].node, others)
        alone = self._world.steps_per_s(part, ())
        return self._world.steps_per_s(part, near) / alone if near and alone else 1.0


def _on(node: str, others: Sequence[Running]) -> list[Running]:
    """The others that are on a node, each with its part there."""
    return [one for other in others for one in other.parts or (other,) if one.gpus[0].node == node]
