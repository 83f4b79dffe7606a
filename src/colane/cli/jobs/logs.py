"""`colane logs`: what a job prints."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli.jobs import objects as jobs

if TYPE_CHECKING:
    from colane.client.client import Client

PIECE_BYTES = 2**20
BACK_MAX_BYTES = 64 * 2**20
"""As much as is kept of a log by default."""
LINE_END = re.compile(rb"\r\n|\n|\r")


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
    """Return where the last lines begin, reading no more from the end than they take; a progress bar's CR ends one.

    It stops where output was dropped, and after `BACK_MAX_BYTES`: a line may be endless.
    """
    part = scheduler.log(job, -PIECE_BYTES, PIECE_BYTES)
    end = part.next_offset
    if not lines:
        return end
    # An unfinished last line is one too; a break at the very end opens none.
    text, start = re.sub(rb"(\r\n|\n|\r)\Z", b"", part.data), end - len(part.data)
    while True:
        breaks = [found.end() for found in LINE_END.finditer(text)]
        if len(breaks) >= lines:
            return start + breaks[-lines]
        lines -= len(breaks)
        size = min(PIECE_BYTES, start)
        if not size or end - start > BACK_MAX_BYTES:
            return start
        part = scheduler.log(job, start - size, size)
        if len(part.data) != size or part.next_offset != start:
            return start
        text, start = part.data, start - size
