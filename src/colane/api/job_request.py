"""The job request, as a pydantic model made from the rows of `model.job_fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, create_model

from colane.api.wire import WireModel
from colane.model.arrays import ELEMENTS_MAX
from colane.model.field_values import (
    SECONDS,
    TIME_MAX_S,
    Amount,
    Flag,
    GpuSizes,
    Number,
    OneOf,
    SomeOf,
    Text,
    TextList,
    TextMap,
    Values,
    Whole,
    check_sizes,
    parse_sizes,
)
from colane.model.job_fields import JOB_FIELDS, JobField
from colane.model.problem import Problem


def _sizes(value: object) -> tuple[int, ...]:
    """Numbers of GPUs from a number, from text as `1..4`, or from a list."""
    if isinstance(value, str):
        return parse_sizes(value)
    given: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) for one in given):
        raise ValueError("must be a number of GPUs, text as 1..4 or 1,2,4, or a list of numbers")
    return check_sizes(given)


GPU_SIZES: Final = Annotated[
    tuple[int, ...],
    BeforeValidator(_sizes),
    Field(strict=False),
    WithJsonSchema(
        {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}
    ),
]
"""Sizes a job can run on, ascending."""


def _of_text(parse: Callable[[object], float]) -> Callable[[object], object]:
    return lambda value: parse(value) if isinstance(value, str) else value


BATCH_JOBS_MAX: Final = 100_000
ANNOTATED: Any = Annotated
LITERAL: Any = Literal
"""As values: the types of a request's fields are made at run time."""


def _text(text: Text) -> Any:  # noqa: ANN401 - a type
    return ANNOTATED[str, StringConstraints(min_length=text.least or None, max_length=text.most, pattern=text.pattern)]


def _number(takes: Whole | Number | Amount) -> Any:  # noqa: ANN401 - a type
    match takes:
        case Whole(least, most):
            return ANNOTATED[int, Field(ge=least, le=most)]
        case Number(least, above, most):
            return ANNOTATED[float, Field(ge=least, gt=above, le=most)]
        case Amount(unit, least, above, most):
            return ANNOTATED[int if unit.is_whole else float, Field(ge=least, gt=above, le=most)]


def _type(takes: Values) -> Any:  # noqa: ANN401, PLR0911 - a type; one for each kind of values
    match takes:
        case Text():
            return _text(takes)
        case Whole() | Number() | Amount():
            return _number(takes)
        case Flag():
            return bool
        case OneOf(of):
            return LITERAL[tuple(one.value for one in of)]
        case SomeOf(of):
            return ANNOTATED[list[_type(OneOf(of))], Field(max_length=len(of))]  # type: ignore[misc]
        case GpuSizes():
            return GPU_SIZES
        case TextMap(name, value, most):
            return ANNOTATED[dict[_text(name), _text(value)], Field(max_length=most)]  # type: ignore[misc]
        case TextList(value, most):
            return ANNOTATED[list[_text(value)], Field(max_length=most)]  # type: ignore[misc]


def _members(field: JobField) -> Iterator[tuple[str, Any]]:
    """The field as pydantic has it, and the one beside it that takes text with a unit."""
    kind = _type(field.takes)
    optional = kind | None if field.default is None else kind
    yield field.name, (optional, Field(field.default, description=field.meaning))
    if isinstance(field.takes, Amount):
        told = ANNOTATED[kind, BeforeValidator(_of_text(field.takes.parse))]
        yield field.text, (told | None, Field(None, description=f"{field.name}, or text with a unit"))


if TYPE_CHECKING:

    class JobRequest(WireModel):
        """Fields that are read by name, for the type checker: rows of `model.job_fields`, as all others are."""

        command: list[str] | None
        model_name: str | None
        python: str | None
        name: str | None
        family: str | None
        workdir: str | None
        output: str | None
        input: str | None
        env: dict[str, str]
        labels: dict[str, str]
        gpus: tuple[int, ...]
        gpu_type: str | None
        anti_collocation: bool
        gpus_per_node: int
        gpu_memory_bytes: int | None
        cores: int
        qos: str
        priority: int
        user: str
        pool: str
        nodes: str
        features: str | None
        whole_node: bool
        time_limit_s: float | None
        begin: str | None
        singleton: bool
        array: str | None
        measurement_group: str | None
        hold: bool
        batch: str | None
        batch_size: int | None
        steps_total: int | None
        preemptible: bool
        checkpoint: str | None
        checkpoint_lead_s: float | None
        mps: bool
        multi_node: bool
        pty: bool
        ranks: str

else:
    JobRequest = create_model(
        "JobRequest",
        __base__=WireModel,
        __module__=__name__,
        __doc__="A job: paper A's object (with `model_name`), or a `command`; both take the other fields.",
        **{name: member for field in JOB_FIELDS for name, member in _members(field)},
    )


class Batch(WireModel):
    """The long form of a batch."""

    jobs: list[JobRequest] = Field(max_length=BATCH_JOBS_MAX)


class SuspendBody(WireModel):
    """How a job is suspended."""

    to_host: bool = False


class ResumeBody(WireModel):
    """When a job that waits may start."""

    at: Annotated[str, Field(max_length=64)] | None = None


class ChangeBody(WireModel):
    """Limits of a live job; what is not given stays as it is, null takes a limit away."""

    time_limit_s: Annotated[float, Field(gt=0, le=TIME_MAX_S)] | None = None
    time_limit: Annotated[float, BeforeValidator(_of_text(SECONDS.parse)), Field(gt=0, le=TIME_MAX_S)] | None = None
    at_once: Annotated[int, Field(ge=1, le=ELEMENTS_MAX)] | None = None


_AMOUNT_TEXTS: Final = {field.text: field.name for field in JOB_FIELDS if field.text}
"""Fields that take text with a unit, each with that of the base unit."""


def in_base_units(request: JobRequest) -> JobRequest:
    """Return a request whose texts with a unit stand in the fields of the base unit."""
    if _AMOUNT_TEXTS.keys().isdisjoint(request.model_fields_set):
        return request
    given = request.model_fields_set & _AMOUNT_TEXTS.keys()
    said = {_AMOUNT_TEXTS[text]: getattr(request, text) for text in given}
    found = {name: value for name, value in said.items() if value is not None}
    return request.model_copy(update={**found, **dict.fromkeys(_AMOUNT_TEXTS)}) if found else request


def said_twice(given: set[str]) -> list[Problem]:
    """Return what is wrong where a field is given both as text and in the base unit."""
    if given.isdisjoint(_AMOUNT_TEXTS):
        return []
    both = [(text, name) for text, name in _AMOUNT_TEXTS.items() if text in given and name in given]
    return [Problem(text, f"give {text} or {name}, not both") for text, name in both]


def said_name(field: JobField, given: set[str]) -> str:
    """Return by which of its names a field was given."""
    return field.text if field.text in given else field.name
