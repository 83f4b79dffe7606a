"""`colane shims`: Slurm's verbs, for those who want them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("shims", epilog="Example: [bold]colane shims ~/.local/share/colane/slurm[/bold]")(shims)


def shims(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="Where they are written.")],
) -> None:
    """Write Slurm's verbs into a directory: sbatch, srun, squeue, scancel, sinfo, sacct and scontrol, on Colane.

    Nothing uses them until that directory stands in PATH.
    """
    from colane.integrations.slurm.contact import SlurmError  # noqa: PLC0415 - what other commands have no use for
    from colane.integrations.slurm.install import install  # noqa: PLC0415

    try:
        told = install(directory)
    except SlurmError as error:
        raise MisuseError(str(error)) from error
    place = directory.expanduser().absolute()
    output.say(f'to use them: export PATH="{place}:$PATH"')
    for each in told:
        output.note(f"note: {each}")
