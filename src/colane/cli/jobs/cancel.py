"""`colane cancel`: stop jobs, or take them from the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused

if TYPE_CHECKING:
    from colane.client.client import Client

THEIRS = ""
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cancel", epilog="Examples: [bold]colane cancel 7 8[/bold], [bold]colane cancel --label run=a[/bold]")(
        cancel
    )


def _parse_job_id(text: str) -> int:
    if text == "all":
        raise typer.BadParameter("all jobs are meant by --all")
    return jobs.parse_job_id(text)


def cancel(
    job: Annotated[
        list[int] | None,
        typer.Argument(metavar="[JOB]...", parser=_parse_job_id, show_default=False, help="Ids of the jobs."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All your jobs that wait or run; for an operator, those of all users.")
    ] = False,
    label: jobs.LabelOption = None,
    as_json: output.Json = False,
) -> None:
    """Cancel jobs: those that wait leave the queue, those that run are stopped.

    A job's processes get SIGTERM, and SIGKILL when they are still there after a while.
    """
    labels = jobs.parse_labels(label)
    if sum(map(bool, (job, everything, labels))) != 1:
        raise MisuseError("cancel: name jobs, or --all, or --label NAME=VALUE (one of the three)")
    with jobs.client() as scheduler:
        # Those that wait go in one request, however many they are.
        waiting = scheduler.cancel_queued() if everything else []
        ids = job or [each["id"] for each in scheduler.live_jobs() if jobs.carries(each, labels)]
        told: dict[int, str | None] = dict.fromkeys(waiting, "cancelled")
        told |= {each: _cancel(scheduler, each) for each in ids}
    unknown = [job_id for job_id, state in told.items() if state is None]
    known = {job_id: state for job_id, state in told.items() if state}
    if as_json:
        output.print_json([{"id": job_id, "state": state} for job_id, state in known.items()])
    else:
        for job_id, state in known.items():
            output.say(f"job {job_id}: {state}")
    theirs = [str(job_id) for job_id, state in told.items() if state == THEIRS]
    if theirs and job:
        raise MisuseError(f"only their owners or an operator may cancel {', '.join(theirs)}")
    if unknown:
        raise MisuseError(f"there is no job {', '.join(map(str, unknown))}")
    if not told:
        output.note("no job waits or runs" + (" with this label" if labels else ""))


def _cancel(scheduler: Client, job_id: int) -> str | None:
    """Cancel a job and return its state, None when there is no such job; one that has ended stays as it was.

    Another user's job is left as it is, too: `THEIRS`.
    """
    try:
        scheduler.cancel(job_id)
    except Refused as refused:
        if refused.status == NOT_FOUND:
            return None
        if refused.status == FORBIDDEN:
            return THEIRS
        if refused.status != CONFLICT:
            raise
    return str(scheduler.job(job_id)["state"])
