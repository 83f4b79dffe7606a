"""`colane again`: submit a job of one's own once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from colane.cli import output
from colane.cli.jobs import objects as jobs
from colane.cli.submit import job_options
from colane.cli.submit.command import Wait, hand_in
from colane.cli.submit.jobfile import JobFile


def register(app: typer.Typer, name: str = "again") -> None:
    """Add the command, by this name or the other, `resubmit`."""
    app.command(name, hidden=name != "again", epilog=f"Example: [bold]colane {name} 7 --gpus 2[/bold]")(again)


@job_options.with_job_options
def again(
    job: jobs.JobArgument,
    wait: Wait = False,
    as_json: output.Json = False,
    **given: Any,  # noqa: ANN401 - options of all types
) -> None:
    """Submit a job of yours again, live or ended, as a new job: its command, directory and options.

    Options that are given here, as colane submit takes them, are in place of what it said. colane resubmit is the same.

    It runs in the directory of the first, with this shell's environment and virtual environment as they are now, as
    with submit: a job's environment is not kept beyond its end. Variables that a job file had set are not set, and it
    waits for no other job (--after).

    A command with a secret among its words is not kept whole either, and is not submitted again once its job has
    ended. The new job's id is the last word printed.
    """
    with jobs.client() as scheduler:
        request = scheduler.request(jobs.id_of(scheduler, job))
    options = job_options.asked(given)
    workdir = Path(str({**request, **options}.get("workdir", "")))
    output.note(f"note: as job {job} in {workdir}, with the environment of this shell")
    hand_in(JobFile(Path(), [request]), options, wait=wait, as_json=as_json)
