"""`colane resubmit`: another name of `colane again`."""

from __future__ import annotations

import typer

from colane.cli.submit.again import again


def register(app: typer.Typer) -> None:
    """Add the name."""
    app.command("resubmit", hidden=True, epilog="Example: [bold]colane resubmit 7 --gpus 2[/bold]")(again)
