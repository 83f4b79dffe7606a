"""Commands that take jobs alone, from the rows of their verbs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from colane.cli import output
from colane.cli.jobs.suspend import JobsArgument, change
from colane.verbs.of_jobs import JOB_VERBS, Deed, JobVerb


def register(app: typer.Typer, name: str) -> None:
    """Add one command."""
    verb = JOB_VERBS[Deed(name)]
    app.command(name, epilog=f"Example: [bold]colane {name} 7[/bold]")(_command(verb))


def _command(verb: JobVerb) -> Callable[..., None]:
    def act(job: JobsArgument, as_json: output.Json = False) -> None:
        change(job, lambda scheduler, each: scheduler.act(verb, each), as_json=as_json)

    act.__doc__ = verb.help
    return act
