"""`colane suspend`: keep jobs from going on for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import jobs, output
from colane.cli.errors import FailureError, MisuseError
from colane.client.errors import Refused

if TYPE_CHECKING:
    from colane.client.client import Client

JobsArgument = Annotated[
    list[int], typer.Argument(metavar="JOB...", min=1, show_default=False, help="Ids of the jobs.")
]

NOT_FOUND, CONFLICT = 404, 409


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("suspend", epilog="Example: [bold]colane suspend 7 8[/bold]")(suspend)


def suspend(job: JobsArgument, as_json: output.Json = False) -> None:
    """Keep jobs from going on, until 'colane resume': those that wait do not start, those that run stop stepping.

    A running job stops at its next step boundary. It keeps its GPU memory and its GPUs, on which others that share
    them go on; time in which it is suspended does not count towards its time limit.
    """
    change(job, lambda scheduler, each: scheduler.suspend(each, by=jobs.current_user()), as_json=as_json)


def change(ids: list[int], ask: Callable[[Client, int], None], *, as_json: bool) -> None:
    """Ask for a change of each job, and print their states and what was refused.

    Raises:
        MisuseError: Some are not there.
        FailureError: Some were refused.
    """
    with jobs.client() as scheduler:
        refusals = {each: refused for each in ids if (refused := _ask(scheduler, each, ask)) is not None}
        found = [scheduler.job(each) for each in ids if each not in refusals]
    if as_json:
        output.print_json([{name: job[name] for name in ("id", "state", "suspended")} for job in found])
    else:
        for job in found:
            output.say(f"job {job['id']}: {state_text(job)}")
    conflicts = [str(refused) for refused in refusals.values() if refused.status == CONFLICT]
    unknown = [str(each) for each, refused in refusals.items() if refused.status == NOT_FOUND]
    if conflicts:
        raise FailureError("; ".join([*conflicts, *(f"there is no job {each}" for each in unknown)]))
    if unknown:
        raise MisuseError(f"there is no job {', '.join(unknown)}")


def state_text(job: jobs.Object) -> str:
    """Return a job's state; a suspended one in the queue is said to be."""
    return f"{job['state']} (held)" if job["suspended"] and job["state"] == "queued" else str(job["state"])


def _ask(scheduler: Client, job_id: int, ask: Callable[[Client, int], None]) -> Refused | None:
    try:
        ask(scheduler, job_id)
    except Refused as refused:
        if refused.status in (NOT_FOUND, CONFLICT):
            return refused
        raise
    return None
