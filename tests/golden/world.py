"""A world with all a policy may look at: GPU types, gangs that lie well or badly, co-runners, neighbours, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from colane.lab.simulate.factors import slowdown_by_work
from colane.lab.simulate.world import Running, Scope, Startup
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory

MIB = 1 << 20


class Family(NamedTuple):
    """How jobs of a family behave.

    Attributes:
        step_s: Of a V100 alone.
        demand: Part of a GPU its kernels need.
        persistent_mib: P.
        ephemeral_mib: E.
        speeds: Against a V100, by GPU type.
        apart: Step time with its GPUs on several sockets / on one.
    """

    step_s: float
    demand: float
    persistent_mib: int
    ephemeral_mib: int
    speeds: tuple[tuple[str, float], ...] = (("A100", 2.0), ("K80", 0.25))
    apart: float = 1.25


FAMILIES = {
    "resnet": Family(0.5, 0.75, 2000, 5000, (("A100", 2.5), ("K80", 0.25)), 1.5),
    "vgg": Family(1.0, 1.0, 3000, 7000, (("A100", 3.0), ("K80", 0.125)), 2.0),
    "lstm": Family(0.25, 0.25, 500, 1500, (("A100", 1.25), ("K80", 0.5)), 1.0),
    "recommender": Family(0.125, 0.125, 1000, 1000, (("A100", 1.0), ("K80", 0.75)), 1.0),
    "transformer": Family(2.0, 0.5, 4000, 6000, (("A100", 4.0), ("K80", 0.125)), 1.75),
    "server": Family(0.0625, 0.0625, 800, 200),
}


class FamilyWorld:
    """Speeds by `FAMILIES`; others on a GPU are bound by its work, neighbours on a socket cost a little.

    Args:
        scope: Whether neighbours on other GPUs count.
    """

    name = "families"
    counts_steps = True

    def __init__(self, scope: Scope = Scope.GPU) -> None:
        self.scope = scope

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002 - as worlds are asked
        return None

    def work_steps(self, job: TraceJob) -> float:
        return float(job.steps or 1)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002 - as worlds are asked
        return Startup(8.0, 8.0)

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        family = FAMILIES[me.job.spec.family]
        if self.memory_mib(me, others) > 16_000:
            return 0.0
        step_s = family.step_s / dict(family.speeds).get(me.gpu_type, 1.0)
        step_s *= family.apart if len(me.sockets) > 1 else 1.0
        co_runners = [other for other in others if not set(me.gpus).isdisjoint(other.gpus)]
        near = [o for o in others if o not in co_runners and not set(me.sockets).isdisjoint(o.sockets)]
        step_s *= slowdown_by_work([family.demand, *(FAMILIES[o.job.spec.family].demand for o in co_runners)])
        return 1 / (step_s * (1 + sum(FAMILIES[o.job.spec.family].demand for o in near) / 2))

    @staticmethod
    def memory_mib(me: Running, others: Sequence[Running]) -> int:
        """What the jobs on its fullest GPU hold between steps, and the largest within one."""
        most = 0
        for gpu in me.gpus:
            there = [FAMILIES[one.job.spec.family] for one in (me, *others) if gpu in one.gpus]
            most = max(most, sum(f.persistent_mib for f in there) + max(f.ephemeral_mib for f in there))
        return most

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002 - as worlds are asked
        family = FAMILIES[job.spec.family]
        return Memory(family.persistent_mib * MIB, family.ephemeral_mib * MIB)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002 - as worlds are asked
        return FAMILIES[job.spec.family].demand
