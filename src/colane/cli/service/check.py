"""`colane check`: whether all that a scheduler keeps can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import StateOption, store_file


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog="Example: [bold]colane check[/bold]")(check)


def _set_aside(path: Path) -> None:
    from colane.server.main import ServerError, locked  # noqa: PLC0415 - as below
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import salvage  # noqa: PLC0415

    try:
        with locked(path.parent):
            gone = salvage.set_aside(path)
    except (StoreError, ServerError) as error:
        raise FailureError(str(error)) from error
    if gone is not None:
        output.say(f"made {path} anew without {', '.join(gone.left_out)}; the store of before is {gone.replaced}")


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", show_default="the store", help="A copy to look through instead.")
    ] = None,
    state: StateOption = None,
    *,
    set_aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Make the store anew without what cannot be read, while no scheduler runs."),
    ] = False,
) -> None:
    """Look through the scheduler's store, or a copy of it: whether it is whole, and every record can be read.

    Where there is no copy to put back, --set-aside makes the store anew from all records that can be read. The one of
    before stays beside it. A running job whose record is gone is ended by its agent.
    """
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import copies  # noqa: PLC0415 - the scheduler's imports take long

    path = file or store_file(state)
    if set_aside:
        if file is not None:
            raise MisuseError("--set-aside: is for the store, not for a copy of it")
        _set_aside(path)
    try:
        found = copies.check(path)
    except StoreError as error:
        raise FailureError(str(error)) from error
    if found.flaws:
        raise FailureError(f"{path}: {len(found.flaws)} flaws: " + "; ".join(found.flaws[:5]))
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(found.counts.items()))
    output.say(f"{path} is whole (schema {found.schema}): {counts or 'nothing in it'}")
