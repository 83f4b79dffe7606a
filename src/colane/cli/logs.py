"""`colane logs`: what a job prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import jobs

if TYPE_CHECKING:
    from colane.client.client import Client

PIECE_BYTES = 2**20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs", epilog="Example: [bold]colane logs -f 7[/bold]")(logs)


def logs(
    job: jobs.JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", "-n", min=0, show_default=False, help="Begin this many lines before the end."),
    ] = None,
) -> None:
    """Print what a job has written to its standard output and error.

    Ctrl-C ends the following, not the job.
    """
    with jobs.client() as scheduler:
        offset = 0 if lines is None else _offset_of_last(scheduler, job, lines)
        if follow:
            follow_log(scheduler, job, offset)
        else:
            _print_from(scheduler, job, offset)


def follow_log(scheduler: Client, job: int, offset: int = 0) -> None:
    """Copy a job's log to standard output until the job has ended."""
    for data in scheduler.follow_log(job, offset):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _print_from(scheduler: Client, job: int, offset: int) -> None:
    while True:
        part = scheduler.log(job, offset, PIECE_BYTES)
        sys.stdout.buffer.write(part.data)
        if not part.data:
            sys.stdout.buffer.flush()
            return
        offset = part.next_offset


def _offset_of_last(scheduler: Client, job: int, lines: int) -> int:
    """Return where the last lines begin, reading no more from the end than they take."""
    wanted_bytes = PIECE_BYTES
    while True:
        part = scheduler.log(job, -wanted_bytes, wanted_bytes)
        start = part.next_offset - len(part.data)
        # An unfinished last line is one too; a newline at the very end opens none.
        text = part.data[:-1] if part.data.endswith(b"\n") else part.data
        breaks = [place for place, byte in enumerate(text) if byte == ord("\n")]
        if not lines:
            return part.next_offset
        if len(breaks) >= lines:
            return start + breaks[-lines] + 1
        if start == 0:
            return 0
        wanted_bytes *= 4
