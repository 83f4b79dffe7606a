"""`colane ui`: the way into the page of the scheduler."""

from __future__ import annotations

import typer

from colane.cli.jobs import objects as jobs


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ui", epilog="Example: [bold]colane ui[/bold]")(ui)


def ui() -> None:
    """Print a link that signs a browser in to the scheduler's page, once and within five minutes.

    Who has it sees and may do what you may, for 12 hours.
    """
    with jobs.client() as scheduler:
        link = scheduler.page_link()
    typer.echo(link)
