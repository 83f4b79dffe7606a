"""Reads what the scheduler's REST API says of finished jobs, measured sets and nodes.

What a report reads is judged strictly: none is drawn from half-read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt, ValidationError

from colane.lab.report.records import Device, JobTime, RunRecord
from colane.model.job import ENDED, JobState
from colane.model.phases import STORY_FIRST
from colane.model.time_spent import TimeSpent


class RecordError(ValueError):
    """A record that cannot be read; the message names the record and the field."""


def parse_records(items: Sequence[object]) -> tuple[RunRecord, ...]:
    """Read records of `GET /finished_jobs`. Raises RecordError: a field is missing or of the wrong kind."""
    return tuple(_parse_record(item, position) for position, item in enumerate(items))


def devices_of_nodes(nodes: Sequence[Mapping[str, object]]) -> tuple[Device, ...]:
    """Devices of the node objects of `GET /nodes`. Raises RecordError: a node lacks its name, or a GPU its index."""
    try:
        parsed = [_NodeFields.model_validate(node) for node in nodes]
    except ValidationError as error:
        raise RecordError(f"node object: {_first_problem(error)}") from error
    return tuple(Device(f"{node.name}/{gpu.index}", gpu.type) for node in parsed for gpu in node.gpus)


def _first_problem(error: ValidationError) -> str:
    """The first of pydantic's findings as `field 'x': what is wrong`."""
    finding = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in finding["loc"]) or "record"
    if finding["type"] == "missing":
        return f"field '{where}': missing"
    if finding["type"] == "extra_forbidden":
        return f"field '{where}': unknown"
    shown = repr(finding["input"])[:80]
    return f"field '{where}': {finding['msg'].removeprefix('Value error, ')}, got {shown}"


class _GpuFields(BaseModel):
    index: NonNegativeInt
    type: str = ""


class _NodeFields(BaseModel):
    name: str
    gpus: list[_GpuFields]


class _ProgressFields(BaseModel):
    """Only what a report reads of the progress; the agent's protocol judges the rest."""

    step_mean_s: FiniteFloat | None = None
    others_ratio: FiniteFloat | None = None
    occupancy_ratio: FiniteFloat | None = None
    peak_bytes: NonNegativeInt | None = None


class _StoryFields(BaseModel):
    sentence: str = ""
    at_s: FiniteFloat | None = None
    state: str = ""


class _TimeFields(BaseModel):
    """Seconds by what they went to; a part that is not told is none."""

    queueing_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    launching_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    running_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    paused_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    checkpointing_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    untold_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class _RecordFields(BaseModel):
    """Fields that a report reads of a record; those without a default must be there.

    What else a scheduler says of a job, older or newer, is not judged: a new field of a job needs no line here.
    """

    model_config = ConfigDict(strict=True)

    id: NonNegativeInt
    name: str
    user: str
    family: str
    batch_size: PositiveInt | None
    labels: dict[str, str]
    state: Annotated[JobState, Field(strict=False)]
    submit_s: FiniteFloat
    first_start_s: FiniteFloat | None
    end_s: FiniteFloat
    gpus: list[str]
    attempt: NonNegativeInt
    policy: str
    steps: NonNegativeInt | None
    steps_total: NonNegativeInt | None
    # A job that never started has no finished object, so nothing of it is demanded.
    start_s: FiniteFloat | None = None
    step_durations_s: list[Annotated[FiniteFloat, Field(ge=0)]] | None = None
    progress: _ProgressFields | None = None
    slowdown_total: Annotated[FiniteFloat, Field(gt=0)] | None = None
    reason: object = None
    detail: str | None = None
    lost_s: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    time_spent: _TimeFields | None = None
    story_left_out: int = 0
    story: list[_StoryFields] = Field(default_factory=list)


AS_TOLD: Final = (
    "id", "name", "family", "state", "submit_s", "end_s", "batch_size", "user", "policy", "labels", "first_start_s",
    "start_s", "attempt", "steps_total", "slowdown_total",
)  # fmt: skip
"""Fields that a report takes as they are."""


def _parse_record(item: object, position: int) -> RunRecord:
    shown = f"job {item['id']}" if isinstance(item, Mapping) and "id" in item else f"record {position}"
    try:
        fields = _RecordFields.model_validate(item)
    except ValidationError as error:
        raise RecordError(f"{shown}: {_first_problem(error)}") from error
    if fields.state not in ENDED:
        raise RecordError(f"{shown}: field 'state': must be an ended state, got '{fields.state}'")
    progress = fields.progress or _ProgressFields()
    told = {name: getattr(fields, name) for name in AS_TOLD} | progress.model_dump()
    return RunRecord(
        **told,
        gpus=tuple(fields.gpus),
        steps=fields.steps or None,  # a process that reports no steps is counted as having done none
        step_durations_s=tuple(fields.step_durations_s or ()),
        time=_time_of(fields),
        pauses_s=_pauses_of(fields),
        reason=_sentence_of(fields),
    )


def _time_of(fields: _RecordFields) -> JobTime | None:
    if fields.time_spent is None:
        return None
    return JobTime(f"{fields.name} #{fields.id}", TimeSpent(**fields.time_spent.model_dump()), fields.lost_s)


def _pauses_of(fields: _RecordFields) -> tuple[tuple[float, float], ...]:
    """When it was parked or suspended; not known of the part of a long story that is not kept."""
    told = [line for line in fields.story if line.at_s is not None]
    ends_s = [*(line.at_s for line in told[1:]), fields.end_s]
    gap = STORY_FIRST - 1 if fields.story_left_out else None
    return tuple(
        (line.at_s, max(line.at_s, end_s))
        for place, (line, end_s) in enumerate(zip(told, ends_s, strict=bool(told)))
        if line.state == JobState.PAUSED and place != gap and line.at_s is not None and end_s is not None
    )


def _sentence_of(fields: _RecordFields) -> str:
    """The reason may come as a sentence or as an object with one; else the story's last line has it."""
    if isinstance(fields.reason, str):
        return fields.reason
    if isinstance(fields.reason, Mapping):
        return str(fields.reason.get("sentence", ""))
    return fields.story[-1].sentence if fields.story else fields.detail or ""
