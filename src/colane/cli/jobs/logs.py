"""`colane logs`: what a job prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused
from colane.model.words import count

if TYPE_CHECKING:
    from colane.client.client import Client, LogPart

PIECE_BYTES = 2**20
BACK_MAX_BYTES = 64 * 2**20  # as much as is kept of a log by default
LINE_END = re.compile(rb"\r\n|\n|\r")
Read = Callable[[int, int], "LogPart"]  # reads a range of a log, by offset and limit


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
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, show_default="all", help="Only what this attempt printed.")
    ] = None,
) -> None:
    """Print what a job has written to its standard output and error.

    A job that was started more than once has its attempts in order; a line between two names the former, its node
    and why it ended. What cannot be read, as its node is away, is told in a line, too.

    Ctrl-C ends the following, not the job.
    """
    with jobs.client() as scheduler:
        job_id = jobs.id_of(scheduler, job)
        found = scheduler.job(job_id)
        if attempt is not None and attempt > found["attempt"]:
            raise MisuseError(f"--attempt: job {job} has had {count(found['attempt'], 'attempt')}, got {attempt}")
        told: list[int | None] = [one["number"] for one in found.get("attempts") or ()]
        known = told or [found["attempt"] or None]
        begin = Begin(attempt, 0)
        if lines is not None:
            begin = begin_of_last(partial(read_log, scheduler, job_id), known if attempt is None else [attempt], lines)
        copy(scheduler.logs(job_id, *begin, joined=attempt is None, follow=follow))


def follow_log(scheduler: Client, job: int) -> None:
    """Copy what a job prints to standard output until the job has ended."""
    copy(scheduler.logs(job, follow=True))


def copy(pieces: Iterable[bytes]) -> None:
    """Write to standard output, each piece at once."""
    for data in pieces:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Begin(NamedTuple):
    """Where to begin: in which attempt, None for the first, and at which byte of its log."""

    attempt: int | None
    offset: int


def read_log(scheduler: Client, job: int, attempt: int | None, offset: int, limit: int) -> LogPart:
    """Return a range of the log of an attempt of a job, the latest if none is named."""
    return scheduler.log(job, offset, limit, attempt)


def begin_of_last(read: Callable[[int | None, int, int], LogPart], attempts: Sequence[int | None], lines: int) -> Begin:
    """Return where the last lines of several attempts begin; one that cannot be read has none."""
    begin = Begin(attempts[-1], 0)
    for number in reversed(attempts):
        try:
            offset, lines = last_lines(partial(read, number), lines)
        except Refused:
            if len(attempts) == 1:
                raise
            offset = 0
        begin = Begin(number, offset)
        if not lines:
            break
    return begin


def last_lines(read: Read, lines: int) -> tuple[int, int]:
    """Return where the last lines of a log begin, and how many fewer it has, reading no more than they take.

    The CR of a progress bar ends a line. It stops where output was dropped, and after `BACK_MAX_BYTES`: a line may be
    endless.
    """
    part = read(-PIECE_BYTES, PIECE_BYTES)
    end = part.next_offset
    if not lines:
        return end, 0
    # An unfinished last line is one too; a break at the very end opens none.
    text, start = re.sub(rb"(\r\n|\n|\r)\Z", b"", part.data), end - len(part.data)
    while True:
        breaks = [found.end() for found in LINE_END.finditer(text)]
        if len(breaks) >= lines:
            return start + breaks[-lines], 0
        lines -= len(breaks)
        size = min(PIECE_BYTES, start)
        if not size:
            return start, lines - bool(end)
        if end - start > BACK_MAX_BYTES:
            return start, 0
        part = read(start - size, size)
        if len(part.data) != size or part.next_offset != start:
            return start, 0
        text, start = part.data, start - size
