"""`colane backup`: a copy of all that a scheduler keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import StateOption, store_file


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("backup", epilog="Example: [bold]colane backup colane-2026-11-25.db[/bold]")(backup)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the copy, readable by you alone.")],
    state: StateOption = None,
) -> None:
    """Copy the scheduler's store to a file, as it is at one moment, while the scheduler runs.

    It holds jobs, nodes, profiles, history, and the commands and environments of jobs that have not ended. Run it on
    the scheduler's machine as the scheduler's user. `colane restore` puts it back.
    """
    from colane.server.store.store import StoreError  # noqa: PLC0415
    from colane.server.upkeep import copies  # noqa: PLC0415 - the scheduler's imports take long

    try:
        size_bytes = copies.backup(store_file(state), file)
    except FileExistsError as error:
        raise MisuseError(f"FILE: {file} exists; name a new file") from error
    except OSError as error:
        raise MisuseError(f"FILE: {file} cannot be written: {error.strerror}") from error
    except StoreError as error:
        raise FailureError(f"{error}; --state names the state directory") from error
    output.say(f"copied to {file} ({output.size(size_bytes)}); colane restore {file} puts it back")
