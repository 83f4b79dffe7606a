"""What the API takes, as pydantic models: unknown fields are refused, numbers are bounded.

The shapes are those of `docs/reference/interfaces.md`. Inside the service only the types of `model` are used.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from colane.model.bounds import LongText, Name, Positive, Ratio, Seconds, StepTime
from colane.model.field_values import GPUS_MAX
from colane.model.quantities import parse_duration_s

NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Node names stand in URLs, file names and `node/index`."""


DurationText = Annotated[
    Seconds, BeforeValidator(lambda value: parse_duration_s(value) if isinstance(value, str) else value)
]


class WireModel(BaseModel):
    """Base of all: unknown fields, numbers as text and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=())


class AdoptBody(WireModel):
    """How many events an operator goes on without."""

    lost: Positive


class AgentModel(WireModel):
    """What an agent says. A newer one may say more than is known here: that is left aside, not refused.

    Else every report of an agent that is upgraded before its scheduler would be refused, and its node be lost. What
    becomes of words that are not known says `model.versions`.
    """

    model_config = ConfigDict(extra="ignore")


class ValueBody(WireModel):
    """A declared number."""

    value: Annotated[float, Field(ge=0)]
    source: Literal["declared"] = "declared"
    samples: Positive = 1
    by: LongText = ""


class StepBody(ValueBody):
    """A declared step time: a step that takes no time would be infinitely fast."""

    value: StepTime


class KeyBody(WireModel):
    """The jobs a profile describes."""

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


class TokenBody(WireModel):
    """A token as its maker describes it: only its SHA-256, in hex. For a user, else for the agent of a node."""

    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    user: Name | None = None
    node: NodeName | None = None
    role: Literal["user", "operator"] | None = None
