"""Commands that take jobs alone, from the rows of their verbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import typer

from colane.cli import output
from colane.cli.jobs.objects import JobName, client, ids_of, name_of
from colane.cli.jobs.suspend import JobsArgument, change
from colane.client.errors import Refused
from colane.client.told import facts_of, in_force
from colane.verbs.of_jobs import JOB_VERBS, Deed, JobVerb


def register(app: typer.Typer, name: str) -> None:
    """Add one command."""
    verb = JOB_VERBS[Deed(name)]
    app.command(name, epilog=f"Example: [bold]colane {name} 7[/bold]")(_command(verb))


def _confirm(names: list[JobName]) -> None:
    """Ask first of jobs that run and have saved nothing, nor are asked to."""
    with client() as scheduler, suppress(Refused):
        found = [scheduler.job(each) for each in ids_of(scheduler, names)]
        lost = [job for job in found if job["node"] and not (in_force(job, "checkpoint") or job.get("saved_s"))]
        told = ", ".join(f"job {name_of(job)} has run for {output.duration(facts_of(job)['ran_s'])}" for job in lost)
        if told and not typer.confirm(f"{told} and saves nothing: it begins anew. Go on?"):
            raise typer.Exit(1)


def _command(verb: JobVerb) -> Callable[..., None]:
    def act(job: JobsArgument, as_json: output.Json = False) -> None:
        if verb.loses and not as_json and sys.stdin.isatty():
            _confirm(job)
        change(job, lambda scheduler, each: scheduler.act(verb, each), as_json=as_json)

    act.__doc__ = verb.help
    return act
