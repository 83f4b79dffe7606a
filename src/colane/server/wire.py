"""What the API takes, as pydantic models: unknown fields are refused, numbers are bounded.

The shapes are those of `docs/interfaces.md`. Inside the service only the types of `model` are used.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from colane.model.checkpoint import LEAD_MAX_S
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s, parse_size_bytes
from colane.model.sizes import GPUS_MAX, check_sizes, parse_sizes

EXACT_MAX: Final = 2**53
"""Largest integer that every JSON reader keeps exactly."""
LABELS_MAX: Final = 64
ENV_VARIABLES_MAX: Final = 10_000
COMMAND_WORDS_MAX: Final = 10_000
RETRIES_MAX: Final = 1_000
PRIORITY_MAX: Final = 2**31
CORES_MAX: Final = 65_536

Size = Annotated[int, Field(ge=0, le=EXACT_MAX)]
Count = Annotated[int, Field(ge=0, le=EXACT_MAX)]
Positive = Annotated[int, Field(ge=1, le=EXACT_MAX)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Ratio = Annotated[float, Field(ge=0)]
StepTime = Annotated[float, Field(gt=0, le=1e12)]
NEARLY_ZERO: Final = -0.01
"""A measured ratio just below zero is a rounding of whoever measured: it must not cost a whole report."""


def _not_below_zero(value: float) -> float:
    return 0.0 if NEARLY_ZERO <= value < 0 else value


MeasuredRatio = Annotated[float, AfterValidator(_not_below_zero), Field(ge=0)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Node names stand in URLs, file names and `node/index`."""
Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Word = Annotated[str, StringConstraints(max_length=131_072, pattern=r"^[^\x00]*$")]
"""131,072 bytes is the longest single argument Linux takes (MAX_ARG_STRLEN)."""
VariableName = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=r"^[^=\x00]+$")]


def _size(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


def _rate(value: object) -> object:
    return round(parse_bandwidth_bytes_per_s(value)) if isinstance(value, str) else value


def _duration(value: object) -> object:
    return parse_duration_s(value) if isinstance(value, str) else value


def _sizes(value: object) -> tuple[int, ...]:
    """Numbers of GPUs from a number, from text as `1..4`, or from a list."""
    if isinstance(value, str):
        return parse_sizes(value)
    given: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) for one in given):
        raise ValueError("must be a number of GPUs, text as 1..4 or 1,2,4, or a list of numbers")
    return check_sizes(given)


GpuSizes = Annotated[
    tuple[int, ...],
    BeforeValidator(_sizes),
    Field(strict=False),
    WithJsonSchema(
        {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}
    ),
]
"""Sizes a job can run on, ascending."""
SizeText = Annotated[Size, BeforeValidator(_size)]
RateText = Annotated[Size, BeforeValidator(_rate)]
DurationText = Annotated[Seconds, BeforeValidator(_duration)]


class WireModel(BaseModel):
    """Base of all: unknown fields, numbers as text and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=())


class JobRequest(WireModel):
    """A job: paper A's object (with `model_name`), or a `command`; both take the other fields."""

    model_name: Name | None = None
    lr: float | None = None
    dataset: Text | None = None
    optim: Text | None = None
    iters: int | None = None
    dataset_path: Text | None = None
    workers: int | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    num_class: int | None = None
    image_size: int | None = None
    augment: int | None = None
    width: float | None = None
    seed: int | None = None
    device: Text | None = None
    checkpoint_dir: Text | None = None
    checkpoint_every_s: float | None = None
    python: Word | None = Field(None, description="Interpreter that runs the built-in trainer")

    name: Name | None = None
    command: Annotated[list[Word], Field(max_length=COMMAND_WORDS_MAX)] | None = None
    workdir: Text | None = None
    env: Annotated[dict[VariableName, Word], Field(max_length=ENV_VARIABLES_MAX)] = Field(default_factory=dict)
    gpus: GpuSizes = (1,)
    gpu_memory_bytes: Annotated[int, Field(ge=1, le=EXACT_MAX)] | None = None
    gpu_memory: Annotated[Positive, BeforeValidator(_size)] | None = None
    gpu_type: Name | None = None
    cores: Annotated[int, Field(ge=0, le=CORES_MAX)] = 0
    host_memory_bytes: Size = 0
    host_memory: SizeText | None = None
    host_bandwidth_bytes_per_s: Size = 0
    host_bandwidth: RateText | None = None
    priority: Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    qos: Literal["debug", "normal", "sweep"] = "normal"
    time_limit_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    time_limit: Annotated[float, Field(gt=0, le=1e12), BeforeValidator(_duration)] | None = None
    retries: Annotated[int, Field(ge=0, le=RETRIES_MAX)] = 0
    user: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    labels: Annotated[dict[Name, Text], Field(max_length=LABELS_MAX)] = Field(default_factory=dict)
    family: Name | None = None
    batch_size: Annotated[int, Field(ge=1, le=EXACT_MAX)] | None = None
    steps_total: Positive | None = None
    batch: Literal["global", "per-gpu"] | None = None
    steps_limit: Positive | None = None
    share: bool = True
    preemptible: bool = False
    checkpoint: Text | None = None
    checkpoint_lead_s: Annotated[float, Field(gt=0, le=LEAD_MAX_S)] | None = None
    checkpoint_lead: Annotated[float, Field(gt=0, le=LEAD_MAX_S), BeforeValidator(_duration)] | None = None
    abortable: bool = False
    kind: Literal["training", "inference"] = "training"
    latency_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    group: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    multi_node: bool = False
    anti_collocation: bool = False
    utility_min: Annotated[float, Field(ge=0, le=1)] = 0.0
    comm_weight: Annotated[int, Field(ge=0, le=4)] | None = None
    comm_pattern: Literal["all", "ring", "pipeline"] = "all"
    mps: bool = False
    ranks: Literal["one", "per-gpu"] = "one"
    company: Name | None = None
    company_size: Annotated[int, Field(ge=1, le=64)] = 1
    pool: Name = "default"
    category: Name = "unknown"
    core_hints: Annotated[list[Literal["pipelined", "many-weights", "complex-between"]], Field(max_length=3)] = Field(
        default_factory=list
    )


class ValueBody(WireModel):
    """A declared number."""

    value: Annotated[float, Field(ge=0)]
    source: Literal["declared"] = "declared"
    samples: Positive = 1
    by: Text = ""


class StepBody(ValueBody):
    """A declared step time: a step that takes no time would be infinitely fast."""

    value: StepTime


class KeyBody(WireModel):
    """Whom a profile describes."""

    family: Name
    batch_size: Positive | None = None
    gpus: Annotated[int, Field(ge=1, le=GPUS_MAX)] = 1
    gpu_type: Name


class ProfileBody(WireModel):
    """A declared profile; a bare number stands for a declared value."""

    key: KeyBody
    step_s: StepBody | StepTime | None = None
    step_median_s: StepBody | StepTime | None = None
    persistent_bytes: ValueBody | Ratio | None = None
    ephemeral_bytes: ValueBody | Ratio | None = None
    overhead_bytes: ValueBody | Ratio | None = None
    occupancy: ValueBody | Ratio | None = None
    bandwidth: ValueBody | Ratio | None = None
    users: Annotated[list[Name], Field(max_length=1_000)] = Field(default_factory=list)
