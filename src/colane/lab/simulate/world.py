"""How fast jobs truly run. A policy never sees a world: it learns from what the driver reports, as it would live.

Work is counted in steps, those of a job's kind: a row without steps has as many as its kind makes in its recorded time.
Where no row of a kind has steps, and no table knows it, a step is one second of its recorded run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, final

from colane.lab.traces.workload import TraceJob
from colane.model.hardware import CPU_DEVICE_TYPE, GpuId
from colane.model.profile import Memory
from colane.perf.estimates import Kind


class Scope(Enum):
    """What can disturb a job: the jobs on its GPUs, or all on its node."""

    GPU = auto()
    NODE = auto()


@final
@dataclass(unsafe_hash=True, slots=True)
class Running:
    """A job where it runs; what a world may look at. A job without GPUs has neither GPUs nor a type of them."""

    job: Final[TraceJob]  # what runs
    gpu_type: Final[str]  # type of its GPUs
    gpus: Final[tuple[GpuId, ...]]  # in rank order
    # the sockets its GPUs hang on, ascending; those of several nodes are numbered through
    sockets: Final[tuple[int, ...]] = (0,)
    sharing: Final[str] = "time-slice"  # how jobs share its GPUs: `mps`, `time-slice` or `cpu`
    parts: Final[tuple[Running, ...]] = ()  # of a job over several nodes, what lies on each, in rank order; else empty
    cores: Final[int] = 0  # cores booked for it; 0 where it shares those near its GPUs
    host: Final[str] = ""  # the node of a job without GPUs; empty for all others
    # where it has none booked, what it gets of those near its GPUs; 0 where that is not known
    shared_cores: Final[float] = 0.0

    @property
    def cores_had(self) -> float:
        """Cores it works with, booked or shared; 0 where that is not known."""
        return float(self.cores) or self.shared_cores

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes its GPUs are on, in rank order."""
        return tuple(dict.fromkeys([gpu.node for gpu in self.gpus]))

    @property
    def loads_on_device(self) -> bool:
        """Whether a process that launches is at work on its device already: on cpu devices it is."""
        return self.gpu_type == CPU_DEVICE_TYPE


class Startup(NamedTuple):
    """What an attempt takes before it steps, alone."""

    alone_s: float  # all of it
    # what of that is work of its device where that is made of cores: co-runners slow it as they slow steps
    work_s: float


NO_STARTUP: Final = Startup(0.0, 0.0)  # of worlds whose durations have it in them


class World(Protocol):
    """The truth about speed."""

    @property
    def name(self) -> str:
        """Name and sources, as reports state it."""

    @property
    def counts_steps(self) -> bool:
        """Whether its steps are the jobs' own, so that they can be learnt from."""

    @property
    def scope(self) -> Scope:
        """Jobs whose coming and going changes a job's speed."""

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:
        """Why this world cannot move a job on any of these GPU types, None when it can."""

    def work_steps(self, job: TraceJob) -> float:
        """Steps a job has to make; only for jobs that were not refused."""

    def startup(self, job: TraceJob) -> Startup:
        """What an attempt of a job takes before it steps, besides what the driver adds."""

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """Speed of a job beside these others, which are in its scope; 0 where it cannot run."""

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """P and E on each GPU; None where the world does not know."""

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:
        """Part of a GPU the job keeps busy alone, 0..1; None where the world does not know.

        With 0 cores: with those that its duration was recorded with.
        """


class BandwidthTruth(Protocol):
    """Which jobs use the memory bandwidth of nodes, and which feel its lack."""

    def used_ratio(self, running: Running) -> float:
        """Part of a node's bandwidth that a job without GPUs uses with the cores it has."""

    def slowdown(self, job: TraceJob, used_ratio: float) -> float:
        """Time of a step of a job with GPUs where others use so much, over that where none do."""


class RecordedWork:
    """What owners tell of work, in steps of their kind: of a recorded duration by the mean of rows that have both."""

    def __init__(self, jobs: Sequence[TraceJob] = ()) -> None:
        made: dict[Kind, tuple[float, float]] = {}
        for job in jobs:
            if job.spec.steps_total is not None and job.duration_s:
                steps, seconds = made.get((job.model, job.batch_size), (0.0, 0.0))
                made[job.model, job.batch_size] = steps + job.spec.steps_total, seconds + job.duration_s
        self._steps_per_s = {kind: steps / seconds for kind, (steps, seconds) in made.items()}
        specs = [job.spec for job in jobs]
        count = {(spec.family, spec.batch_size) for spec in specs if spec.steps_total is not None}
        # kinds of which no row has steps: a step is a second of recorded run
        self.in_seconds = frozenset({(spec.family, spec.batch_size) for spec in specs} - count)

    def work_steps(self, job: TraceJob) -> float:
        """Those it makes."""
        return self.told_steps(job) if job.steps is None else float(job.steps)

    def told_steps(self, job: TraceJob) -> float:
        """Its steps; where it has none, those of its kind in its recorded seconds."""
        if job.steps is not None and not job.is_timed:
            return float(job.steps)
        return (job.duration_s or 0.0) * self.kind_steps_per_s(job)

    def kind_steps_per_s(self, job: TraceJob) -> float:
        """Steps that jobs of its kind make in a recorded second."""
        return self._steps_per_s.get((job.model, job.batch_size), 1.0)

    def alone_steps_per_s(self, job: TraceJob) -> float:
        """All of that in its recorded duration."""
        if job.steps is None:
            return self.kind_steps_per_s(job)
        return job.steps / job.duration_s if job.duration_s else float("inf")


class NeutralWorld(RecordedWork):
    """Durations as recorded, on any GPU; jobs that share a GPU share its time equally. Its work is seconds."""

    name = "neutral: durations as recorded, equal shares of a GPU"
    counts_steps = False
    scope = Scope.GPU

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        """A job without a duration cannot be moved."""
        return "has no duration, and the neutral world has no speeds" if job.duration_s is None else None

    def work_steps(self, job: TraceJob) -> float:
        """Recorded seconds."""
        return job.duration_s or 0.0

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        """Recorded durations have it in them."""
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """One recorded second a second at the size it asks for, divided by the jobs on the GPU that carries most."""
        alone = part_of_asked(me)
        return alone / (1 + most_on_a_gpu(me, others)) if others else alone

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """As declared."""
        return job.memory

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        """Not known."""
        return None


def part_of_asked(me: Running) -> float:
    """Speed of a job of several sizes over that at the size it asks for: fewer GPUs in proportion, more bring nothing.

    As is believed where nothing is known (`perf.factors.of_count`).
    """
    spec = me.job.spec
    return min(1.0, len(me.gpus) / spec.gpus) if spec.sizes else 1.0


def most_on_a_gpu(me: Running, others: Sequence[Running]) -> int:
    """How many of the others there are on the GPU of `me` that has most of them."""
    return max(sum(gpu in other.gpus for other in others) for gpu in me.gpus)
