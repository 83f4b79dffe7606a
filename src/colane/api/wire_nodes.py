"""What agents send, and what is asked of nodes, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from colane.api.reports import ENDS_MAX
from colane.api.wire import (
    TEXT_MAX,
    AgentModel,
    Count,
    DurationText,
    MeasuredRatio,
    Name,
    NodeName,
    Ratio,
    Seconds,
    Size,
    Text,
    WireModel,
)
from colane.model.field_values import NO_CONTROLS
from colane.model.hardware import TIME_SLICE, TO_HOST_BYTES_PER_S
from colane.model.job_fields import CORES_MAX
from colane.model.sizes import GPUS_MAX
from colane.model.versions import ADDRESS_SCHEMES, ENDS, LINKS, PHASES, RESTS, TURNS
from colane.model.words import count

JOBS_PER_REPORT_MAX: Final = 10_000
ID_DIGITS_MAX: Final = 16
STEP_DURATIONS_MAX: Final = 10_000
"""Per-step durations kept of one job; an agent sends a sample beyond it."""
WORD_MAX: Final = 100
Short: Final = StringConstraints(max_length=WORD_MAX)
"""A word of a closed set, of which another version may know others: see `model.versions`."""
DrainReason = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


def _address(value: object) -> object:
    """An address of a kind that is not known is none."""
    if not isinstance(value, str):
        return value
    scheme, found, _ = value.partition("://")
    return value if not found or ADDRESS_SCHEMES.read(scheme) else ""


class GpuBody(AgentModel):
    """A GPU as its agent describes it."""

    index: Annotated[int, Field(ge=0, lt=GPUS_MAX)]
    uuid: Name
    type: Name
    memory_bytes: Size
    socket: Annotated[int, Field(ge=0, le=CORES_MAX)] = 0
    cores: Annotated[list[Annotated[int, Field(ge=0, lt=CORES_MAX)]], Field(max_length=CORES_MAX)] = Field(
        default_factory=list
    )
    healthy: bool = True
    foreign_bytes: Size = 0
    others_ratio: Ratio = 0.0
    sharing: Annotated[str, StringConstraints(max_length=WORD_MAX, pattern=NO_CONTROLS)] = TIME_SLICE


GpuIndexText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}$")]
"""Paper A's form of a GPU: its index as text."""


def _link(value: tuple[str, int, float]) -> tuple[str, int, float]:
    """Only NVLinks are bonded, so a link that is read as another has none."""
    kind, lanes, bandwidth_bytes_per_s = value
    known = LINKS.read(kind)
    return known, lanes if known == kind else 0, bandwidth_bytes_per_s


Link = Annotated[
    tuple[Annotated[str, Short], Annotated[int, Field(ge=0, le=1_000)], Ratio],
    Field(strict=False),  # JSON has lists for tuples; what is inside stays strict
    AfterValidator(_link),
]
"""Kind, NVLinks bonded, bytes per second in one direction (0 unknown)."""


class TopologyBody(AgentModel):
    """How the GPUs of a node are connected, by position in `gpus`; see `model.Topology`."""

    links: Annotated[list[Annotated[list[Link], Field(max_length=GPUS_MAX)]], Field(max_length=GPUS_MAX)]
    sockets: Annotated[list[Annotated[int, Field(ge=0, le=CORES_MAX)]], Field(max_length=GPUS_MAX)]
    switches: Annotated[list[Annotated[int, Field(ge=-1, le=CORES_MAX)]], Field(max_length=GPUS_MAX)] = Field(
        default_factory=list
    )
    nvswitch: bool = False

    @model_validator(mode="after")
    def _is_square(self) -> Self:
        size = len(self.sockets)
        if len(self.links) != size or any(len(row) != size for row in self.links):
            raise ValueError(f"links must be a square of {size} x {size}, one row for each of the sockets")
        if len(self.switches) not in {0, size}:
            raise ValueError(f"switches has {count(len(self.switches), 'entry')} for {count(size, 'socket')}")
        for a, row in enumerate(self.links):
            if [b for b, link in enumerate(row) if link[0] == "X"] != [a]:
                raise ValueError(f"links[{a}] must be X at [{a}], a GPU and itself, and nowhere else")
            for b in range(a):
                if row[b][:2] != self.links[b][a][:2]:
                    raise ValueError(f"links[{a}][{b}] is {row[b][0]}, links[{b}][{a}] is {self.links[b][a][0]}")
        return self


class NoticeBody(AgentModel):
    """Notice that an agent has of the end of its machine; seconds are from the report on."""

    reason: DrainReason = ""
    left_s: Seconds | None = None


class DrainBody(WireModel):
    """How a node is drained."""

    reason: DrainReason = ""
    deadline_s: DurationText | None = None


class NodeBody(AgentModel):
    """A node as its agent registers it; what the node object holds besides is the scheduler's own."""

    name: NodeName
    gpus: Annotated[list[GpuBody | GpuIndexText], Field(max_length=GPUS_MAX)]
    leased: bool = True
    replaced: bool = False
    version: Annotated[str, StringConstraints(max_length=WORD_MAX, pattern=NO_CONTROLS)] = ""
    runs_as: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    secret: Annotated[str, StringConstraints(max_length=200, pattern=r"^[!-~]*$")] = Field("", repr=False)
    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    address: Annotated[
        str,
        BeforeValidator(_address),
        StringConstraints(max_length=1_000, pattern=r"^(https?://[^\s@]+)?$"),
    ] = ""
    pool: Name = "default"
    cores: Annotated[list[Annotated[int, Field(ge=0, lt=CORES_MAX)]], Field(max_length=CORES_MAX)] = Field(
        default_factory=list
    )
    host_memory_bytes: Size = 0
    host_bandwidth_bytes_per_s: Size = 0
    topology: TopologyBody | None = None
    host_refusal: Text = ""
    park_s: Seconds = 0.0
    to_host_bytes_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = TO_HOST_BYTES_PER_S


class ProgressBody(AgentModel):
    """A sample of a running attempt; see `model.Progress`."""

    at_s: Seconds
    steps: Count = 0
    steps_total: Count | None = None
    first_step_s: Seconds | None = None
    last_step_s: Seconds | None = None
    step_mean_s: Seconds | None = None
    step_median_s: Seconds | None = None
    step_max_s: Seconds | None = None
    loss: float | None = None
    persistent_bytes: Size | None = None
    peak_bytes: Size | None = None
    memory_by: Text = ""
    overhead_bytes: Size | None = None
    cpu_s: Seconds | None = None
    occupancy_ratio: MeasuredRatio | None = None
    bandwidth_ratio: MeasuredRatio | None = None
    others_ratio: MeasuredRatio | None = None
    occupancy_by: Text = ""
    note: Text = ""
    turn: Annotated[str, Short, AfterValidator(TURNS.read)] = ""
    turn_service_s: Seconds | None = None
    turn_wait_s: Seconds | None = None
    turn_share_ratio: MeasuredRatio | None = None
    turn_quantum_s: Seconds | None = None
    turn_handoff_s: Seconds | None = None
    on_host_bytes: Size | None = None
    host_refusal: Text = ""
    rest: Annotated[str, Short, AfterValidator(RESTS.read)] = ""
    saved_s: Seconds | None = None
    steps_saved: Count | None = None
    save_problem: Text = ""
    saves_asked: Count = 0
    noise_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    saves: bool = False
    reforms: bool = False
    ranks: Count = 0
    answers: Count | None = None
    idle_s: Seconds | None = None
    latency_p50_s: Seconds | None = None
    latency_p95_s: Seconds | None = None
    latency_p99_s: Seconds | None = None


class JobUseBody(AgentModel):
    """How a job uses its node, by its own processes; see `model.JobUsage`."""

    busy_ratio: MeasuredRatio | None = None
    device_bytes: Size | None = None
    cpu_cores: MeasuredRatio | None = None
    host_bytes: Size | None = None
    steps_per_s: MeasuredRatio | None = None
    share_ratio: MeasuredRatio | None = None


class DeviceUseBody(AgentModel):
    """How a device is used, by all; see `model.DeviceUsage`."""

    index: Annotated[int, Field(ge=0, lt=GPUS_MAX)]
    busy_ratio: MeasuredRatio | None = None
    used_bytes: Size | None = None
    power_w: MeasuredRatio | None = None
    temperature_c: Annotated[float, Field(ge=-300, le=10_000)] | None = None
    throttle: Annotated[list[Annotated[str, Short]], Field(max_length=WORD_MAX)] | None = None
    xid: Count | None = None


class JobReport(AgentModel):
    """One attempt as its agent sees it."""

    id: Count
    attempt: Count
    phase: Annotated[str, Short, AfterValidator(PHASES.read)]
    pid: Count | None = None
    start_s: Seconds | None = None
    progress: ProgressBody | None = None
    use: JobUseBody | None = None


class BandwidthBody(AgentModel):
    """How much bandwidth of a node's memory each job used, as `model.BandwidthSample`."""

    used_ratio: MeasuredRatio | None = None
    by_job: Annotated[dict[str, MeasuredRatio], Field(max_length=JOBS_PER_REPORT_MAX)] = Field(default_factory=dict)
    by: Annotated[str, StringConstraints(max_length=100)] = ""
    can_limit: bool = False

    @field_validator("by_job")
    @classmethod
    def _are_ids(cls, value: dict[str, float]) -> dict[str, float]:
        if not all(job.isascii() and job.isdigit() and len(job) <= ID_DIGITS_MAX for job in value):
            raise ValueError("each key must be the id of a job")
        return value


class EpochBody(AgentModel):
    """The newest start of a scheduler that an agent was told of."""

    number: Count
    id: Annotated[str, StringConstraints(max_length=200)]


class ReportBody(AgentModel):
    """What an agent observes of its node."""

    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    cluster_id: Annotated[str, StringConstraints(max_length=200)] | None = None
    events_seen: Count | None = None
    version_seen: Count | None = None
    epoch: EpochBody | None = None
    at_s: Seconds
    leased: bool | None = None
    lease_left_s: Annotated[float, Field(ge=0, le=1e8)] | None = None
    halts: bool = False
    gpus: Annotated[list[GpuBody], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    messages: Annotated[list[Text], Field(max_length=100)] = Field(default_factory=list)
    jobs: Annotated[list[JobReport], Field(max_length=JOBS_PER_REPORT_MAX)] = Field(default_factory=list)
    bandwidth: BandwidthBody | None = None
    devices: Annotated[list[DeviceUseBody], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    notice: NoticeBody | None = None


class FinishedBody(AgentModel):
    """How an attempt's process ended."""

    id: Count
    attempt: Count
    node: NodeName
    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    cluster_id: Annotated[str, StringConstraints(max_length=200)] | None = None
    events_seen: Count | None = None
    epoch: EpochBody | None = None
    start_s: Seconds | None = None
    end_s: Seconds
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31)] | None = None
    signal: Annotated[int, Field(ge=0, le=1_000)] | None = None
    outcome: Annotated[str, Short, AfterValidator(ENDS.read)]
    detail: Text = ""
    step_durations_s: Annotated[list[Seconds], Field(max_length=STEP_DURATIONS_MAX)] = Field(default_factory=list)
    progress: ProgressBody | None = None
    log_bytes: Size | None = None
    log_truncated: bool = False
    was_stopped: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _keeps_unknown_word(cls, body: Any) -> Any:  # noqa: ANN401 - whatever JSON it is
        """People read what its agent calls an end that is not known here."""
        if not isinstance(body, dict):
            return body
        outcome, detail = body.get("outcome"), body.get("detail", "")
        if not isinstance(outcome, str) or not isinstance(detail, str) or outcome in ENDS.known:
            return body
        return {**body, "detail": f"{outcome[:WORD_MAX]!r}{': ' if detail else ''}{detail}"[:TEXT_MAX]}

    @model_validator(mode="after")
    def _says_how(self) -> Self:
        if self.outcome == "exited" and self.exit_code is None:
            raise ValueError("exit_code is required when the outcome is exited")
        if self.outcome == "signalled" and self.signal is None:
            raise ValueError("signal is required when the outcome is signalled")
        return self


FinishedBodies = Annotated[list[FinishedBody], Field(min_length=1, max_length=ENDS_MAX)]
"""Ends of one node's attempts, told together."""
