"""`colane release`: let jobs start that were held, now or at a time."""

from __future__ import annotations

from typing import Annotated

import typer

from colane.cli import output
from colane.cli.jobs.suspend import JobsArgument, change
from colane.verbs.of_jobs import RESUME


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("release", epilog="Example: [bold]colane release 7 --at 22:00[/bold]")(release)


def release(
    job: JobsArgument,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="WHEN", show_default="now", help="Not before: now+2h, 16:00, 2030-12-01T08:00."),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Let jobs start that were submitted with --hold or --begin, or suspended while they waited.

    Jobs that wait for others (--after) go on waiting for them.
    """
    change(job, lambda scheduler, each: scheduler.act(RESUME, each, at=at), as_json=as_json)
