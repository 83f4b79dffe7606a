"""Options of `colane submit`, one for each field of a job that has one, and what they say in a job request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli.jobs import objects as jobs
from colane.cli.judged import judged, limit_s
from colane.model.field_values import (
    SECONDS,
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
    parse_sizes,
)
from colane.model.job_fields import JOB_FIELDS, JobField

if TYPE_CHECKING:
    from colane.api.jobs import JobRequestObject

OPTIONS: Final = tuple(field for field in JOB_FIELDS if field.option is not None)


def _long_name(field: JobField) -> str:
    return "" if field.option is None else field.option.names[0]


OPTION_OF: Final = {name: _long_name(field) for field in OPTIONS for name in (field.name, field.said)} | {
    "labels.notify": "--notify"
}
"""The option that stands for each field of a request, by both of its names."""


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field, behind its first parameter; it takes them as further keywords."""
    own = [one for one in signature(command, eval_str=True).parameters.values() if one.kind is not one.VAR_KEYWORD]
    first, *others = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
    command.__signature__ = Signature([first, *map(_parameter, OPTIONS), *others])  # type: ignore[attr-defined] # Typer reads it
    return command


def asked(given: Mapping[str, Any]) -> JobRequestObject:
    """Return what the options say, as fields of a job request.

    Raises MisuseError: a text that should be NAME=VALUE is not.
    """
    return {name: value for field in OPTIONS for name, value in _said(field, given[field.said])}


def _said(field: JobField, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - options of all types
    if value is None or value is False or value == []:
        return
    match field.takes:
        case Flag(implies):
            yield field.name, not field.default
            yield from ((other, True) for other in implies)
        case TextMap():
            yield field.said, jobs.parse_labels(value, _long_name(field))
        case SomeOf():
            yield field.said, [one.value for one in value]
        case _:
            yield (
                field.said,
                value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value,
            )


def _parameter(field: JobField) -> Parameter:
    option = field.option
    assert option is not None  # noqa: S101 - of those that have one
    kind = _type(field.takes)
    metavar = field.takes.unit.metavar if isinstance(field.takes, Amount) else option.metavar
    typed = typer.Option(
        *option.names,
        help=option.help,
        metavar=metavar,
        show_default=False,
        callback=_judge(field.takes),
        rich_help_panel=option.panel.value,
    )
    annotated, default = (bool, False) if kind is bool else (kind | None, None)
    return Parameter(field.said, Parameter.KEYWORD_ONLY, annotation=Annotated[annotated, typed], default=default)


TYPES: Final[Mapping[type, Any]] = {Flag: bool, Whole: int, Number: float, TextMap: list[str], TextList: list[str]}
"""What Typer makes of an option's words, which are text otherwise."""


def _type(takes: Values) -> Any:  # noqa: ANN401 - a type
    match takes:
        case OneOf(of):
            return of
        case SomeOf(of):
            return list[of]  # type: ignore[valid-type] # made at run time
        case Text(is_path=True):
            return Path
        case _:
            return TYPES.get(type(takes), str)


def _judge(takes: Values) -> Callable[[str | None], str | None] | None:
    """What refuses text that the scheduler could not read, before it is asked."""
    match takes:
        case GpuSizes():
            return judged(parse_sizes)
        case Amount() as amount:
            # A bare time is refused where users of Slurm count it otherwise.
            return judged(limit_s if amount.unit is SECONDS and amount.slurm_unit else amount.parse)
        case Text(parse=parse) if parse is not None:
            return judged(parse)
        case _:
            return None
