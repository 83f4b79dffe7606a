"""What agents say: the objects that `wire_nodes` judges, as they are sent.

An agent makes them a second long for each of its jobs, so they are dictionaries, and no models that would be checked
where they are made. `tests/server/test_api_types.py` holds each against the model of the same request.
"""

from __future__ import annotations

from typing import Final, NotRequired

from typing_extensions import TypedDict

from colane.api.jobs import ProgressObject
from colane.api.nodes import EpochObject, GpuObject, TopologyObject
from colane.api.samples import DeviceUseObject, JobUseObject

ENDS_MAX: Final = 100
"""An agent tells of at most so many ends with one request."""


class RegistrationObject(TypedDict):
    """A node as its agent registers it; see `wire_nodes.NodeBody`."""

    secret: str
    name: str
    version: str
    agent_id: str
    address: str
    pool: str
    gpus: list[GpuObject]
    topology: TopologyObject
    cores: list[int]
    host_memory_bytes: int
    host_bandwidth_bytes_per_s: int
    host_refusal: str
    leased: NotRequired[bool]
    replaced: NotRequired[bool]
    runs_as: NotRequired[str]
    park_s: NotRequired[float]
    to_host_bytes_per_s: NotRequired[float]


class JobReportObject(TypedDict):
    """One attempt as its agent sees it; `progress` once its process runs. See `wire_nodes.JobReport`."""

    id: int
    attempt: int
    phase: str
    pid: NotRequired[int]
    start_s: NotRequired[float]
    progress: NotRequired[ProgressObject]
    use: NotRequired[JobUseObject]


class HostMemoryObject(TypedDict, total=False):
    """Of a sample: what of a job's GPU memory lies on the host, and whether it can be moved there."""

    on_host_bytes: int | None
    host_refusal: str
    rest: str


class BandwidthObject(TypedDict):
    """Which job used how much of its memory's bandwidth; see `wire_nodes.BandwidthBody`."""

    used_ratio: float | None
    by_job: dict[int, float]
    by: str
    can_limit: bool


class NoticeObject(TypedDict):
    """Notice of the machine's end; see `wire_nodes.NoticeBody`."""

    reason: str
    left_s: float | None


class HeardObject(TypedDict):
    """What an agent has heard of its cluster."""

    epoch: EpochObject | None
    events_seen: int


class ReportObject(TypedDict):
    """What an agent observes of its node; see `wire_nodes.ReportBody`."""

    agent_id: str
    at_s: float
    gpus: list[GpuObject]
    messages: list[str]
    jobs: list[JobReportObject]
    cluster_id: NotRequired[str | None]
    epoch: NotRequired[EpochObject | None]
    events_seen: NotRequired[int]
    version_seen: NotRequired[int]
    leased: NotRequired[bool]
    lease_left_s: NotRequired[float | None]
    halts: NotRequired[bool]
    notice: NotRequired[NoticeObject]
    bandwidth: NotRequired[BandwidthObject | None]
    devices: NotRequired[list[DeviceUseObject]]


class FinishedObject(TypedDict):
    """How an attempt's process ended; see `wire_nodes.FinishedBody`. Who says so is added when it is told."""

    id: int
    attempt: int
    end_s: float
    exit_code: int | None
    signal: int | None
    log_bytes: int | None
    log_truncated: bool
    start_s: float | None
    outcome: str
    detail: str
    step_durations_s: list[float]
    progress: ProgressObject
    was_stopped: bool | None
    agent_id: NotRequired[str]
    cluster_id: NotRequired[str | None]
    epoch: NotRequired[EpochObject | None]
    events_seen: NotRequired[int]
    node: NotRequired[str]
