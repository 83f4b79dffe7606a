"""The world of paper B's simulations: jobs alone as recorded, and lanes that together go rho times as fast as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from colane.lab.simulate.world import NO_STARTUP, Running, Scope, Startup
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory


class Gain(NamedTuple):
    """Total throughput of lanes that run at once, over that of one.

    Attributes:
        lanes: So many lanes and more go `rho` times as fast together as one; fewer gain in proportion.
        rho: The gain.
    """

    lanes: int
    rho: float

    def of(self, lanes: int) -> float:
        """Gain of so many lanes."""
        return 1 + (self.rho - 1) * min(1.0, (lanes - 1) / (self.lanes - 1))


class GainWorld:
    """Every job alone at its recorded speed; k lanes at once have equal parts of rho(k) times that.

    The paper measured no slowdown of each set, only what a policy gained as a whole: rho stands for that and is an
    input, so a makespan that follows from it confirms the mechanism, not the gain.

    Args:
        memory: P and E by the names Salus gives its workloads.
        gain: Rho.
    """

    counts_steps = True
    scope = Scope.GPU

    def __init__(self, memory: Mapping[str, Memory], gain: Gain) -> None:
        self._memory = memory
        self._gain = gain
        self.name = (
            f"recorded speeds alone; {gain.lanes} or more lanes together go {gain.rho:g} times as fast as one; "
            "memory from Salus's table"
        )

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        """A job needs steps and a duration."""
        return None if job.steps and job.duration_s else "has no steps or no duration"

    def work_steps(self, job: TraceJob) -> float:
        """Its steps."""
        return float(job.steps or 0)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        """Recorded durations have it in them."""
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """How fast a job goes in its lane; `others` are those that run in other lanes."""
        alone = (me.job.steps or 0) / (me.job.duration_s or 1.0)
        lanes = 1 + len(others)
        return alone * self._gain.of(lanes) / lanes

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """P and E as measured by Salus."""
        return self._memory.get(job.model if job.batch_size is None else f"{job.model}_{job.batch_size}")

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        """Not known."""
        return None
