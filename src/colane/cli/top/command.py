"""`colane top`: devices with the jobs on them, why jobs wait, and the jobs, on one screen."""

from __future__ import annotations

import getpass
import shutil
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs

SORT_WORDS = "state, age, speed, user, left"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top", epilog="Example: [bold]colane top --mine[/bold]")(top)


def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print it once, whole; as ever where it is no terminal.")
    ] = False,
    mine: Annotated[bool, typer.Option("--mine", help="List only your own jobs.")] = False,
    sort: Annotated[str, typer.Option("--sort", metavar="WORD", help=f"Jobs by {SORT_WORDS}.")] = "state",
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="How often it is drawn anew, 0.5 to 60.")
    ] = 2.0,
    as_json: output.Json = False,
) -> None:
    """Show all devices with the jobs on them, how busy they are, what needs a look, why jobs wait, and the jobs.

    A job on several devices is one bar. `4127 +3` is job 4127 and three more there; an asterisk marks your own jobs,
    a triangle what needs a look, a cross what is broken, two bars what waits on its device, a tilde work that is not
    Colane's. SPEED is of the job alone, 1.00.

    Keys: / filters, s sorts, u lists your own, Enter shows why, log and story of a job, k cancels it, PgDn and PgUp
    go through the nodes, q leaves. The screen with keys needs Textual, the extra named top. --json prints what it is
    drawn from, once.
    """
    from colane.cli.top.drawing import SORTS  # noqa: PLC0415 - Rich takes 60 ms

    if sort not in SORTS:
        raise MisuseError(f"--sort: must be {SORT_WORDS}, got {sort[:40]!r}")
    if not 0.5 <= every <= 60:
        raise MisuseError(f"--every: must be from 0.5 to 60, got {every:g}")
    if as_json:
        _print_json(mine=mine)
        return
    if once or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # Textual draws on the last
        _print(mine=mine, sort=sort)
        return
    try:
        from colane.cli.top.app import TopApp  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        output.note("without Textual this is printed once; pip install 'colane[top]' gives a screen with keys")
        _print(mine=mine, sort=sort)
        return
    with jobs.client() as scheduler:
        scheduler.health()  # what is wrong with it is said on the terminal, not on a screen
    TopApp(user=own_user(), mine=mine, sort=sort, every_s=every).run()


def own_user() -> str:
    """Return the user's name."""
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""


def _print_json(*, mine: bool) -> None:
    from colane.cli.top.snapshot import ShotTaker  # noqa: PLC0415 - as above

    with jobs.client() as scheduler:
        output.print_json(asdict(ShotTaker(scheduler, own_user() if mine else None).take()))


def _print(*, mine: bool, sort: str) -> None:
    from colane.cli.top.drawing import TopPicture, TopView  # noqa: PLC0415 - as above
    from colane.cli.top.snapshot import ShotTaker  # noqa: PLC0415
    from colane.cli.top.texts import ASCII  # noqa: PLC0415

    with jobs.client() as scheduler:
        shot = ShotTaker(scheduler).take()
    width = max(80, shutil.get_terminal_size((80, 24)).columns)
    picture = TopPicture(shot, TopView(width=width, user=own_user(), mine=mine, sort=sort))
    lines = picture.lines()
    if sys.stdout.isatty():
        console = output.console()
        for line in lines:
            console.print(line, no_wrap=True, overflow="crop", crop=True)
        return
    is_plain = "utf" not in (sys.stdout.encoding or "").lower()
    for line in lines:
        text = line.plain.rstrip()
        output.say(text.translate(ASCII) if is_plain else text)
