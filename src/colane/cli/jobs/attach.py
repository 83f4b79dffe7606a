"""`colane attach`: be beside a job as if it had been started here, until it ends or one leaves."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.jobs import terminal
from colane.cli.jobs.logs import Begin, begin_of_last, copy, read_log
from colane.client.errors import Refused
from colane.model.phases import is_in

LINES: Final = 10
WITHOUT_TERMINAL: Final = frozenset({403, 404, 405, 409})
"""Refusals of a job that has none, is another user's, or of a scheduler that knows of none."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("attach", epilog="Example: [bold]colane attach 7[/bold]")(attach)


def attach(
    job: jobs.JobArgument,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Begin this many lines before the end of what it has printed.")
    ] = LINES,
) -> None:
    """Follow a job as submit --wait does: print what it prints from here on, and leave with its exit code.

    It may wait, run, or be started again meanwhile: its attempts follow each other. Ctrl-C leaves the job, which goes
    on. What is typed reaches a job with a terminal (submit --pty) alone, if it is yours; Enter ~. leaves it.
    """
    with jobs.client() as scheduler:
        job_id = jobs.id_of(scheduler, job)
        found = scheduler.job(job_id)
        if found.get("elements") is not None:
            raise MisuseError(f"job {job} is an array: attach to one of its elements, as {job_id}[0]")
        if sys.stdin.isatty() and not jobs.has_ended(found):
            try:
                raise typer.Exit(terminal.sit(scheduler, job_id, str(job)))
            except Refused as refused:
                if refused.status not in WITHOUT_TERMINAL:
                    raise
        begin, known = Begin(None, 0), [one["number"] for one in found.get("attempts") or ()]
        if known:
            begin = begin_of_last(partial(read_log, scheduler, job_id), known, lines)
        elif not jobs.has_ended(found):
            output.note(f"job {job} {is_in(found['state'])}: {scheduler.why(job_id)['sentence']}")
        try:
            copy(scheduler.logs(job_id, *begin, follow=True))
            (ended,) = jobs.until_ended(scheduler, [job_id])
        except KeyboardInterrupt:
            output.note(f"left job {job}, which goes on. To stop it: colane cancel {job}")
            raise
    output.note(f"job {job} {ended['state']}: {ended['reason']}")
    raise typer.Exit(jobs.exit_code_of(ended))
