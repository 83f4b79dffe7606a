"""What agents send, and what is asked of nodes, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from colane.api.nodes import Cores, EpochObject, SentGpu, SentTopology
from colane.api.of_record import SentDeviceUse, SentJobUse, SentProgress
from colane.api.reports import ENDS_MAX
from colane.api.wire import AgentModel, DurationText, NodeName, WireModel
from colane.model.bounds import TEXT_MAX, WORD_MAX, Count, LongText, MeasuredRatio, Name, Seconds, Size, word
from colane.model.field_values import GPUS_MAX, NO_CONTROLS
from colane.model.hardware import TO_HOST_BYTES_PER_S
from colane.model.versions import ADDRESS_SCHEMES, ENDS, PHASES

JOBS_PER_REPORT_MAX: Final = 10_000
ID_DIGITS_MAX: Final = 16
STEP_DURATIONS_MAX: Final = 10_000
"""Per-step durations kept of one job; an agent sends a sample beyond it."""
DrainReason = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]


def _address(value: object) -> object:
    """An address of a kind that is not known is none."""
    if not isinstance(value, str):
        return value
    scheme, found, _ = value.partition("://")
    return value if not found or ADDRESS_SCHEMES.read(scheme) else ""


GpuIndexText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}$")]
"""Paper A's form of a GPU: its index as text."""


class NoticeBody(AgentModel):
    """Notice that an agent has of the end of its machine; seconds are from the report on."""

    reason: DrainReason = ""
    left_s: Seconds | None = None


class DrainBody(WireModel):
    """How a node is drained."""

    reason: DrainReason = ""
    deadline_s: DurationText | None = None


class ReserveBody(WireModel):
    """How nodes are reserved: from when to when, as `begin` of a job has times, and for which users."""

    nodes: Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=NO_CONTROLS)]
    from_: Annotated[str, Field(alias="from", max_length=100)] = "now"
    to: Annotated[str, StringConstraints(max_length=100)]
    users: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    name: NodeName | None = None
    ignore_jobs: bool = False


class NodeBody(AgentModel):
    """A node as its agent registers it; what the node object holds besides is the scheduler's own."""

    name: NodeName
    gpus: Annotated[list[SentGpu | GpuIndexText], Field(max_length=GPUS_MAX)]
    leased: bool = True
    replaced: bool = False
    version: Annotated[str, StringConstraints(max_length=WORD_MAX, pattern=NO_CONTROLS)] = ""
    runs_as: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    secret: Annotated[str, StringConstraints(max_length=200, pattern=r"^[!-~]*$")] = Field("", repr=False)
    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    address: Annotated[
        str, BeforeValidator(_address), StringConstraints(max_length=1_000, pattern=r"^(https?://[^\s@]+)?$")
    ] = ""
    pool: Name = "default"
    cores: Cores = Field(default_factory=list)
    host_memory_bytes: Size = 0
    host_bandwidth_bytes_per_s: Size = 0
    topology: SentTopology | None = None
    host_refusal: LongText = ""
    park_s: Seconds = 0.0
    to_host_bytes_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = TO_HOST_BYTES_PER_S


class JobReport(AgentModel):
    """One attempt as its agent sees it."""

    id: Count
    attempt: Count
    phase: Annotated[str, word(PHASES)]
    pid: Count | None = None
    start_s: Seconds | None = None
    progress: SentProgress | None = None
    use: SentJobUse | None = None
    halted: bool = False


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


class ReportBody(AgentModel):
    """What an agent observes of its node."""

    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    cluster_id: Annotated[str, StringConstraints(max_length=200)] | None = None
    events_seen: Count | None = None
    version_seen: Count | None = None
    epoch: EpochObject | None = None
    at_s: Seconds
    leased: bool | None = None
    lease_left_s: Annotated[float, Field(ge=0, le=1e8)] | None = None
    halts: bool = False
    halts_told: bool = False
    gpus: Annotated[list[SentGpu], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    messages: Annotated[list[LongText], Field(max_length=100)] = Field(default_factory=list)
    jobs: Annotated[list[JobReport], Field(max_length=JOBS_PER_REPORT_MAX)] = Field(default_factory=list)
    bandwidth: BandwidthBody | None = None
    devices: Annotated[list[SentDeviceUse], Field(max_length=GPUS_MAX)] = Field(default_factory=list)
    notice: NoticeBody | None = None


class FinishedBody(AgentModel):
    """How an attempt's process ended."""

    id: Count
    attempt: Count
    node: NodeName
    agent_id: Annotated[str, StringConstraints(max_length=200)] = ""
    cluster_id: Annotated[str, StringConstraints(max_length=200)] | None = None
    events_seen: Count | None = None
    epoch: EpochObject | None = None
    start_s: Seconds | None = None
    end_s: Seconds
    exit_code: Annotated[int, Field(ge=-(2**31), le=2**31)] | None = None
    signal: Annotated[int, Field(ge=0, le=1_000)] | None = None
    outcome: Annotated[str, word(ENDS)]
    detail: LongText = ""
    step_durations_s: Annotated[list[Seconds], Field(max_length=STEP_DURATIONS_MAX)] = Field(default_factory=list)
    progress: SentProgress | None = None
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
