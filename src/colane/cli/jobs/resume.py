"""`colane resume`: let suspended jobs go on."""

from __future__ import annotations

import typer

from colane.cli import output
from colane.cli.jobs.suspend import JobsArgument, change


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("resume", epilog="Example: [bold]colane resume 7[/bold]")(resume)


def resume(job: JobsArgument, as_json: output.Json = False) -> None:
    """Let suspended jobs go on; others stay as they are."""
    change(job, lambda scheduler, each: scheduler.resume(each), as_json=as_json)
