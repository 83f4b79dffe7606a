"""What is assumed where nothing was measured: formulas for jobs that share a GPU, and the world made of them alone.

A job's *demand* is the part of a GPU's time its kernels need when it goes at full speed. From a measured pair of two
copies, each at r times its speed alone, demand d = 1 / (2 r): two copies need 2 d of a GPU that has 1. Where both keep
their speed, d is at most 0.5 and 0.5 is taken; above 1 the copies hinder each other beyond their work.
"""

from __future__ import annotations

from collections.abc import Sequence

from colane.lab.simulate.world import (
    NO_STARTUP,
    RecordedWork,
    Running,
    Scope,
    Startup,
    most_on_a_gpu,
    part_of_asked,
)
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory

PHILLY_DEMAND = 0.52
"""Mean GPU utilisation of the jobs of Microsoft's Philly clusters (Jeon et al., ATC 2019, table 3: 52.32 %). Taken for
a job of which nothing was measured."""


def demand_of_copies(speed_ratio: float) -> float:
    """Demand of a job of which two copies on one GPU each go at `speed_ratio` of their speed alone."""
    return 1 / (2 * min(1.0, speed_ratio))


def slowdown_by_work(demands: Sequence[float]) -> float:
    """Step time together / alone of jobs that share a GPU: it cannot give more than one second of work in a second."""
    return max(1.0, sum(demands))


def slowdown_of_several(pairs: Sequence[float], demands: Sequence[float]) -> float:
    """Slowdown of a job beside several others.

    What each adds in a pair adds up, and the work of all bounds it from below: whichever is slower. Demands are those
    of all jobs on the GPU, its own too.
    """
    return max(1.0 + sum(slowdown - 1.0 for slowdown in pairs), slowdown_by_work(demands))


class FactorsWorld(RecordedWork):
    """Recorded durations and steps, and the bound by work for jobs that share.

    The demand is taken for that of a job whose trace does not say what part of a GPU it asks for.
    """

    counts_steps = True
    scope = Scope.GPU

    def __init__(self, demand: float = PHILLY_DEMAND, jobs: Sequence[TraceJob] = ()) -> None:
        super().__init__(jobs)
        self._demand = demand
        self.name = (
            "factors: durations as recorded; jobs that share a GPU are bound by its work, "
            f"a job needs {demand:g} of a GPU where its trace does not say"
        )

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        """A job without a duration cannot be moved."""
        return None if job.duration_s is not None else "has no duration and no table knows its speed"

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        """Recorded durations have it in them."""
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """Speed alone, divided by the work asked of its busiest GPU where that is more than there is."""
        alone = self.alone_steps_per_s(me.job) * part_of_asked(me)
        return alone / slowdown_by_work(self.demands(me, others)) if others else alone

    def demands(self, me: Running, others: Sequence[Running]) -> list[float]:
        """Demands of the jobs on its busiest GPU."""
        if not others or not most_on_a_gpu(me, others):
            return [self.demand(me.job)]
        by_gpu = ([self.demand(o.job) for o in others if gpu in o.gpus] for gpu in me.gpus)
        return [self.demand(me.job), *max(by_gpu, key=sum)]

    def demand(self, job: TraceJob) -> float:
        """Part of each of its GPUs a job needs."""
        return job.gpu_ratio if job.gpu_ratio < 1 else self._demand

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """As declared."""
        return job.memory

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        """Its demand."""
        return min(1.0, self.demand(job))
