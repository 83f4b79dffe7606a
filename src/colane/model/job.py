"""Jobs as policies see them: needs and progress, no command, environment or secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType, final

from colane.model.hardware import DEFAULT_POOL, GpuId
from colane.model.placement import Placement
from colane.model.reason import Reason

JobId = NewType("JobId", int)
"""Handed out in order of submission, so that order of arrival is order of id."""


class JobState(StrEnum):
    """States of a job's life; `core.lifecycle` holds the moves between them."""

    QUEUED = "queued"
    ASSIGNED = "assigned"
    LAUNCHING = "launching"
    RUNNING_PROTECTED = "running-protected"
    RUNNING = "running"
    PAUSED = "paused"
    CHECKPOINTING = "checkpointing"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OUT_OF_MEMORY = "out-of-memory"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"


ENDED = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.OUT_OF_MEMORY,
        JobState.TIMED_OUT,
        JobState.CANCELLED,
    }
)
"""States nothing leaves."""


class JobKind(StrEnum):
    """What a job's steps are."""

    TRAINING = "training"
    """Optimizer steps."""
    INFERENCE = "inference"
    """Requests, answered by a resident process."""


class SuspendVia(StrEnum):
    """How a running job is kept from going on."""

    LANE = "lane"
    """It waits at a step boundary; its memory stays where it is, and its GPUs stay booked."""
    HOST = "host"
    """Its GPU memory is moved to the host besides, and its GPUs are free for others until it comes back."""


class CommPattern(StrEnum):
    """Which ranks of a job talk to each other."""

    ALL = "all"
    """Every pair, as in data-parallel training."""
    RING = "ring"
    PIPELINE = "pipeline"


class NeedClass(NamedTuple):
    """All that decides where a job may run: if one job of a class finds no place, none does."""

    pool: str
    gpus: int
    gpu_type: str | None
    gpu_memory_bytes: int | None
    cores: int
    host_memory_bytes: int
    host_bandwidth_bytes_per_s: int
    share: bool
    family: str
    batch_size: int | None
    multi_node: bool
    anti_collocation: bool
    kind: JobKind
    latency_s: float | None
    circle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a job needs, as its owner declared it. Optional values are unknown when None.

    Attributes:
        name: For people; need not be unique.
        family: Profile key: jobs of one family behave alike.
        user: Owner.
        pool: Nodes it may use.
        gpus: GPUs, at least 1; on one node unless `multi_node`.
        gpu_type: Required GPU type, None for any.
        gpu_memory_bytes: Peak memory on each GPU.
        cores: Cores booked for it alone; 0 shares the cores near its GPUs.
        host_memory_bytes: Host memory booked.
        host_bandwidth_bytes_per_s: Bandwidth to host memory booked (paper C, section 4.2), where nodes say theirs.
        priority: Higher goes first where a policy heeds it.
        time_limit_s: Stopped when an attempt has run this long.
        retries: How often a failed attempt is tried again.
        share: False keeps every other job off its GPUs.
        batch_size: Per GPU.
        steps_total: Steps until it is done.
        steps_limit: Stopped as succeeded when this many steps are done (profiling).
        company: Name of a set under measurement, started together on one GPU.
        company_size: Jobs in that set.
        preemptible: It saves its state and goes on from there, so a policy may stop it and start it again later.
        kind: Training, or inference by a resident process.
        latency_s: Objective for one step of an inference job.
        weight: Its share of a lane's turns under the fair rule, against the weights of the others.
        group: Whom its owner works with, where sharing a GPU is allowed within a group only.
        multi_node: Its ranks may lie on several nodes.
        anti_collocation: No two of its ranks on one node (paper C, section 3).
        utility_min: A policy that postpones starts it only where its placement utility is at least this, 0..1
            (paper C, section 4.3).
        comm_weight: How much its ranks talk: 4 much .. 1 little, 0 not at all; None judges by its batch size (paper C).
        comm_pattern: Which ranks talk to each other.
        circle: Whose jobs may share a GPU with it; set by the scheduler, empty where all may (see `core.circles`).
        labels: For people and reports.
        need: Its class of need, worked out from the fields above.
    """

    name: str
    family: str
    user: str = ""
    pool: str = DEFAULT_POOL
    gpus: int = 1
    gpu_type: str | None = None
    gpu_memory_bytes: int | None = None
    cores: int = 0
    host_memory_bytes: int = 0
    host_bandwidth_bytes_per_s: int = 0
    priority: int = 0
    time_limit_s: float | None = None
    retries: int = 0
    share: bool = True
    batch_size: int | None = None
    steps_total: int | None = None
    steps_limit: int | None = None
    company: str | None = None
    company_size: int = 1
    preemptible: bool = False
    kind: JobKind = JobKind.TRAINING
    latency_s: float | None = None
    weight: float = 1.0
    group: str = ""
    multi_node: bool = False
    anti_collocation: bool = False
    utility_min: float = 0.0
    comm_weight: int | None = None
    comm_pattern: CommPattern = CommPattern.ALL
    circle: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    need: NeedClass = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the class once; it is asked for at every move in the queue."""
        object.__setattr__(self, "need", need_class(self))

    def part(self, total: int, ranks: int) -> int:
        """What of a total that the job books (cores, host memory) lies where so many of its ranks lie, rounded up."""
        return total if ranks == self.gpus else -(-total * ranks // self.gpus)


def need_class(spec: JobSpec) -> NeedClass:
    """The class of a job."""
    return NeedClass(
        spec.pool,
        spec.gpus,
        spec.gpu_type,
        spec.gpu_memory_bytes,
        spec.cores,
        spec.host_memory_bytes,
        spec.host_bandwidth_bytes_per_s,
        spec.share,
        spec.family,
        spec.batch_size,
        spec.multi_node,
        spec.anti_collocation,
        spec.kind,
        spec.latency_s,
        spec.circle,
    )


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Move:
    """One line of a job's story."""

    at_s: Final[float]
    state: Final[JobState]
    reason: Final[Reason]

    def __init__(self, at_s: float, state: JobState, reason: Reason) -> None:
        self.at_s = at_s
        self.state = state
        self.reason = reason


class Served(NamedTuple):
    """How long a job has run on GPUs of one type."""

    gpu_type: str
    run_s: float


class Exit(NamedTuple):
    """How a process ended: exactly one of code and signal is set, or neither when it never started."""

    code: int | None
    signal: int | None
    detail: str = ""


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Job:
    """A job and where it stands; a value: `core.lifecycle` makes the next one, nobody changes it.

    Attributes:
        id: Unique, ascending with submission.
        spec: Its needs.
        state: See `JobState`.
        submit_s: Unix seconds, as are all times.
        attempt: Number of starts so far; fences reports of older processes.
        failures: Attempts that failed by the job's own fault.
        placement: Where it runs; None while queued.
        first_start_s: First process start of any attempt.
        start_s: Process start of this attempt.
        first_step_s: First step of this attempt.
        end_s: When it ended for good.
        ending: The state it will end in once its process is gone, while STOPPING.
        exit: How its last process ended.
        ended_on: Nodes from which its processes of this attempt are gone, while others of its nodes still have some.
        served: What its earlier attempts have had, by GPU type in order of name; the present one is not in it.
        suspended: Somebody wants it not to go on: it is PAUSED while it holds GPUs, and does not start while QUEUED.
        suspended_via: How a running one is kept from going on.
        on_host_bytes: GPU memory of it that lies on the host; its GPUs are not booked then. None while it is on them.
        left_beside: Jobs that were on its GPUs when its memory left them: beside these it may come back.
        story: Every move so far, oldest first.
    """

    id: JobId
    spec: JobSpec
    submit_s: float
    state: JobState
    attempt: int
    failures: int
    placement: Placement | None
    first_start_s: float | None
    start_s: float | None
    first_step_s: float | None
    end_s: float | None
    ending: JobState | None
    exit: Exit | None
    ended_on: tuple[str, ...]
    served: tuple[Served, ...]
    suspended: bool
    suspended_via: SuspendVia
    on_host_bytes: int | None
    left_beside: tuple[JobId, ...]
    story: tuple[Move, ...]

    def __init__(  # noqa: PLR0913, PLR0917 - a record
        self,
        id: JobId,
        spec: JobSpec,
        submit_s: float,
        state: JobState = JobState.QUEUED,
        attempt: int = 0,
        failures: int = 0,
        placement: Placement | None = None,
        first_start_s: float | None = None,
        start_s: float | None = None,
        first_step_s: float | None = None,
        end_s: float | None = None,
        ending: JobState | None = None,
        exit: Exit | None = None,
        ended_on: tuple[str, ...] = (),
        served: tuple[Served, ...] = (),
        suspended: bool = False,
        suspended_via: SuspendVia = SuspendVia.LANE,
        on_host_bytes: int | None = None,
        left_beside: tuple[JobId, ...] = (),
        story: tuple[Move, ...] = (),
    ) -> None:
        self.id = id
        self.spec = spec
        self.submit_s = submit_s
        self.state = state
        self.attempt = attempt
        self.failures = failures
        self.placement = placement
        self.first_start_s = first_start_s
        self.start_s = start_s
        self.first_step_s = first_step_s
        self.end_s = end_s
        self.ending = ending
        self.exit = exit
        self.ended_on = ended_on
        self.served = served
        self.suspended = suspended
        self.suspended_via = suspended_via
        self.on_host_bytes = on_host_bytes
        self.left_beside = left_beside
        self.story = story

    def copied(self) -> Job:
        """An equal one of its own."""
        return Job(
            self.id,
            self.spec,
            self.submit_s,
            self.state,
            self.attempt,
            self.failures,
            self.placement,
            self.first_start_s,
            self.start_s,
            self.first_step_s,
            self.end_s,
            self.ending,
            self.exit,
            self.ended_on,
            self.served,
            self.suspended,
            self.suspended_via,
            self.on_host_bytes,
            self.left_beside,
            self.story,
        )

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue, and may start."""
        return self.state is JobState.QUEUED and not self.suspended

    @property
    def is_on_host(self) -> bool:
        """Whether its GPU memory lies on the host, so that it holds no GPU."""
        return self.on_host_bytes is not None

    @property
    def is_returning(self) -> bool:
        """Whether it waits for the GPUs its memory left, to go on there."""
        return self.on_host_bytes is not None and self.state is JobState.PAUSED and not self.suspended

    @property
    def gpus_held(self) -> tuple[GpuId, ...]:
        """GPUs it holds, in rank order: not those of nodes it is gone from."""
        if self.placement is None or self.on_host_bytes is not None:
            return ()
        if not self.ended_on:
            return self.placement.gpus
        return tuple([gpu for gpu in self.placement.gpus if gpu.node not in self.ended_on])

    @property
    def reason(self) -> Reason | None:
        """Why it is in its present state."""
        return self.story[-1].reason if self.story else None
