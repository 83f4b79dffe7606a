"""`colane wait`: wait for the end of jobs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.formatting import Format, printed
from colane.cli.jobs import objects as jobs
from colane.cli.jobs.suspend import JobsArgument
from colane.settings.readers import some_time_s

if TYPE_CHECKING:
    from colane.api.jobs import JobObject

TIMED_OUT = 124  # exit code of `timeout`, which scripts know


class _WaitedEnough(Exception):  # noqa: N818 - no error; and no OSError, which the HTTP client would take for its own
    """It takes longer than asked."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("wait", epilog="Example: [bold]colane wait 7 8 && python evaluate.py[/bold]")(wait)


def wait(
    job: JobsArgument,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", show_default="none", help="Wait no longer, and leave with code 124."),
    ] = None,
    as_json: output.Json = False,
    template: Format = None,
) -> None:
    """Wait until jobs have ended, and leave with the exit code of the first that failed, in the order given.

    The jobs go on when waiting is interrupted or takes too long.
    """
    max_s = None if timeout is None else _duration_s(timeout)
    ended: dict[int, JobObject] = {}
    with jobs.client() as scheduler:
        ids = jobs.ids_of(scheduler, job)
        with suppress(_WaitedEnough), _no_longer_than(max_s):
            for each in jobs.until_ended(scheduler, list(ids)):
                ended[each["id"]] = each
    in_order = [ended[each] for each in ids if each in ended]
    if not printed(template, as_json, in_order, known=jobs.LATE_FIELDS):
        for each in in_order:
            output.say(f"job {jobs.name_of(each)} {each['state']}: {each['reason']}")
    left = [ids[each] for each in ids if each not in ended]
    if left:
        output.note(f"not ended after {timeout}: {', '.join(left)}")
        raise typer.Exit(TIMED_OUT)
    raise typer.Exit(next((code for code in map(jobs.exit_code_of, in_order) if code), 0))


def _duration_s(text: str) -> float:
    try:
        return some_time_s(text)
    except ValueError as error:
        raise MisuseError(f"--timeout: {error}") from error


@contextmanager
def _no_longer_than(max_s: float | None) -> Iterator[None]:
    """Raise `_WaitedEnough` inside after so long: the stream of events may be silent for longer than that."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _WaitedEnough

    if max_s is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
