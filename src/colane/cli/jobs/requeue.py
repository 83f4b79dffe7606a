"""`colane requeue`: take running jobs off their GPUs, to wait anew."""

from __future__ import annotations

import typer

from colane.cli import output
from colane.cli.jobs.suspend import JobsArgument, change


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("requeue", epilog="Example: [bold]colane requeue 7[/bold]")(requeue)


def requeue(job: JobsArgument, as_json: output.Json = False) -> None:
    """Take running jobs off their GPUs and queue them again; they keep their ids and their place in line.

    A job that was submitted with --checkpoint saves its state first and goes on from there; any other begins anew. It
    counts as no failure. colane again submits a job once more as a new one.
    """
    change(job, lambda scheduler, each: scheduler.requeue(each), as_json=as_json)
