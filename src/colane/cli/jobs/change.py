"""`colane change`: another time limit, another number of elements at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import suspend
from colane.cli.judged import judged, limit_s
from colane.model.quantities import parse_duration_s

NONE: Final = "none"  # in the place of a limit: there is to be none

EXAMPLE: Final = "Examples: [bold]colane change 7 --time-limit 4h[/bold]; [bold]colane change 12 --at-once 16[/bold]"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("change", epilog=EXAMPLE)(change)


def _or_none(parse: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: text if text == NONE else parse(text)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text)):
        raise ValueError(f"must be a number, at least 1, or none, got {text!r}")
    return int(text)


def change(
    job: suspend.JobsArgument,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit", "-t", metavar="TIME|none", show_default=False, callback=judged(_or_none(limit_s)),
            help="Stopped after this time from its start, as 90s, 10m or 1-00:00.",
        ),
    ] = None,
    at_once: Annotated[
        str | None,
        typer.Option(
            "--at-once", metavar="N|none", show_default=False, callback=judged(_or_none(_number)),
            help="Of an array: how many elements may run at once.",
        ),
    ] = None,
    as_json: output.Json = False,
) -> None:  # fmt: skip
    """Change limits of jobs that wait or run.

    A job that has run longer than its new limit is stopped now. Of an array, the elements that wait and run have the
    new limit, too; those that run beyond a smaller --at-once go on.
    """
    limits: dict[str, Any] = {}
    if time_limit is not None:
        limits["time_limit_s"] = None if time_limit == NONE else parse_duration_s(time_limit)
    if at_once is not None:
        limits["at_once"] = None if at_once == NONE else int(at_once)
    if not limits:
        raise MisuseError("change: give --time-limit, or --at-once of an array")
    suspend.change(job, lambda scheduler, each: scheduler.change(each, limits), as_json=as_json)
