"""`colane restore`: puts a copy in the place of what a scheduler keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import StateOption, store_file


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("restore", epilog="Example: [bold]colane restore colane-2026-11-25.db[/bold]")(restore)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made by colane backup.")],
    state: StateOption = None,
    force: Annotated[bool, typer.Option("--force", help="Also where there is a store; that one is put aside.")] = False,
) -> None:
    """Put a copy back that `colane backup` made, while no scheduler runs.

    Jobs that were running when the copy was made start again from what they have saved. What was submitted since is
    not known any more: agents end it, and its ids are given to other jobs.
    """
    from colane.server.main import ServerError, locked  # noqa: PLC0415 - the scheduler's imports take long
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import copies  # noqa: PLC0415

    place = store_file(state)
    if place.exists() and not force:
        raise MisuseError(f"--force: there is a store at {place}; with --force it is put aside")
    try:
        with locked(place.parent):
            replaced = copies.restore(file, place)
    except (StoreError, ServerError) as error:
        raise FailureError(str(error)) from error
    aside = "" if replaced is None else f"; the store of before is {replaced}"
    output.say(f"put back {file} at {place}{aside}. Start the scheduler now")
