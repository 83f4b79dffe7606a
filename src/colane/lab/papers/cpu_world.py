"""The truth about a month like CODA's (paper D): how fast its jobs go with how many cores.

Stated by the paper: utilisation and speed rise linearly with cores up to an optimum and hardly change beyond; the
optimum is linear in GPUs. Its curves are figures, so they are made here of what its text says. The optimum on one GPU
follows from the steps of Table II: the paper's tuner, from its own start values, takes so many. Chosen: one core for
each further GPU; the speed with no core at all, so that GPUs in use are used 54.4 % under the cores that jobs ask for
where they are used 68.1 % at the optimum (62.1 / 91.2 and 45.4 / 83.5, the reading of utilisation over all GPUs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from colane.lab.simulate.world import NO_STARTUP, Running, Scope, Startup
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory

BEST_CORES: Mapping[str, int] = MappingProxyType({
    "alexnet": 5, "vgg16": 5, "inception3": 4, "resnet50": 4,
    "bi-att-flow": 7, "transformer": 2, "wavenet": 3, "deepspeech": 3,
})  # fmt: skip
"""On one GPU, by model."""

CORES_PER_FURTHER_GPU = 1
BEST_USE_RATIO = 0.681  # use of a GPU by a job with enough cores: 62.1 % of all over 91.2 % in use
STARVED_RATIO = 0.65  # speed towards which fewer and fewer cores lead, over the best


HEAVY = "memory_bandwidth"  # label of the CPU jobs that are heavy on memory bandwidth
CORE_BANDWIDTH_RATIO = 0.1
"""Part of a node's bandwidth that each core of such a job uses; chosen: eight are more than the threshold of 75 %."""

SHORT_RATIO = 0.75  # part from which on others feel it

SLOWDOWNS: Mapping[str, float] = MappingProxyType({
    "bi-att-flow": 1.0, "transformer": 1.0, "alexnet": 0.3, "deepspeech": 0.3, "wavenet": 0.15,
})  # fmt: skip
"""Slowdown beside a job that uses it all, less 1. Stated (section III-D): language models lose half of their speed
and more, DeepSpeech more than Wavenet, AlexNet some, other vision models nothing; the numbers are chosen."""


def best_cores(family: str, gpus: int) -> int:
    """Fewest cores with which a job is as fast as can be."""
    return BEST_CORES[family] + CORES_PER_FURTHER_GPU * (gpus - 1)


class CpuMonthWorld:
    """A world of jobs with GPUs, cores and bandwidth. A step is what is done in a second with enough cores."""

    name = "paper D's month: speed by cores, made of the paper's text"
    counts_steps = True
    scope = Scope.GPU

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        """A job of the month has a duration and one of its models."""
        if job.duration_s is None:
            return "has no duration"
        return None if not job.spec.gpus or job.model in BEST_CORES else f"is of no model of the paper: {job.model}"

    def work_steps(self, job: TraceJob) -> float:
        """What it did in its recorded time, with the cores it asked for."""
        return (job.duration_s or 0.0) * self.speed(job, job.spec.cores)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        """Durations have it in them."""
        return NO_STARTUP

    def speed(self, job: TraceJob, cores: float) -> float:
        """Speed with so many cores over the best."""
        if not job.spec.gpus:
            return min(1.0, cores / job.spec.cores)
        part = min(1.0, cores / best_cores(job.model, job.spec.gpus))
        return STARVED_RATIO + (1 - STARVED_RATIO) * part

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:  # noqa: ARG002
        """No job shares a GPU here."""
        return self.speed(me.job, me.cores)

    def used_ratio(self, running: Running) -> float:
        is_heavy = HEAVY in running.job.spec.labels
        return running.cores * CORE_BANDWIDTH_RATIO if is_heavy else 0.0

    def slowdown(self, job: TraceJob, used_ratio: float) -> float:
        over = max(0.0, used_ratio - SHORT_RATIO) / (1 - SHORT_RATIO)
        return 1 + over * SLOWDOWNS.get(job.model, 0.0)

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Not known; each has its GPUs to itself."""
        return None

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        """Use of its GPUs, as its cores let it work."""
        return BEST_USE_RATIO * self.speed(job, cores) if job.spec.gpus else None
