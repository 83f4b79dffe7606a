"""`colane cancel`: stop jobs, or take them from the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from colane.cli import output
from colane.cli.completing import complete_jobs
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


def _parse_job(text: str) -> jobs.JobName:
    if text == "all":
        raise typer.BadParameter("all jobs are meant by --all")
    return jobs.parse_job_name(text)


QUEUED, RUNNING = "queued", "running"
STATES = {QUEUED: QUEUED, "pending": QUEUED, RUNNING: RUNNING}  # what is meant by words for states; Slurm's as well


def cancel(
    job: Annotated[
        list[jobs.JobName] | None,
        typer.Argument(
            metavar="[JOB]...",
            parser=_parse_job,
            autocompletion=complete_jobs,
            show_default=False,
            help="Ids of the jobs; 12[3,7-9] are elements of array 12, @ is your last job.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All your jobs that wait or run; for an operator, those of all users.")
    ] = False,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="All jobs of this user that wait or run, as --all.")
    ] = None,
    label: jobs.LabelOption = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="queued|running", help="Of --all, --user or --label only those that are so."),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Cancel jobs: those that wait leave the queue, those that run are stopped. Of an array, all or some elements.

    A job's processes get SIGTERM, and SIGKILL when they are still there after a while.
    """
    labels = jobs.parse_labels(label)
    if sum(map(bool, (job, everything, user is not None, labels))) != 1:
        raise MisuseError("cancel: name jobs, or --all, --user NAME or --label NAME=VALUE (one of the four)")
    wanted = None if state is None else STATES.get(state.lower())
    if state is not None and (job or wanted is None):
        said = "goes with --all, --user or --label" if job else f"must be queued or running, got {state}"
        raise MisuseError(f"--state: {said}")
    with jobs.client() as scheduler:
        # Those that wait go in one request, however many they are.
        is_of_all = (everything or user is not None) and wanted != RUNNING
        waiting = scheduler.cancel_queued(user=user) if is_of_all else []
        asked = [] if job or (is_of_all and wanted == QUEUED) else scheduler.live_jobs()
        live = [
            each for each in asked
            if jobs.carries(each, labels) and wanted in {None, QUEUED if each["state"] == QUEUED else RUNNING}
        ]  # fmt: skip
        # Those that wait first: they would start on what the others leave.
        live = sorted(
            (each for each in live if user in {None, each["user"]}), key=lambda each: each["state"] != "queued"
        )
        names = job or [jobs.JobName(each["id"]) for each in live if each.get("array_id") is None]
        told: dict[jobs.JobName, str | None] = dict.fromkeys(map(jobs.JobName, waiting), "cancelled")
        told |= {each: _cancel(scheduler, each) for each in names}
    unknown = [job_id for job_id, state in told.items() if state is None]
    known = {job_id: state for job_id, state in told.items() if state}
    if as_json:
        output.print_json(
            [
                {"id": name.job, "state": state} | ({} if name.elements is None else {"elements": name.elements})
                for name, state in known.items()
            ]
        )
    else:
        for job_id, became in known.items():
            output.say(f"job {job_id}: {became}")
    theirs = [str(job_id) for job_id, state in told.items() if state == THEIRS]
    if theirs and (job or user is not None):
        raise MisuseError(f"only their owners or an operator may cancel {', '.join(theirs)}")
    if unknown:
        raise MisuseError(f"there is no job {', '.join(map(str, unknown))}")
    if not told:
        output.note(f"no job{f' of {user}' if user else ''} waits or runs{' with this label' if labels else ''}")


def _cancel(scheduler: Client, name: jobs.JobName) -> str | None:
    """Cancel a job and return its state, None when there is no such job; one that has ended stays as it was.

    Of an array, how its elements stand.

    Another user's job is left as it is, too: `THEIRS`.
    """
    try:
        if name.elements is None:
            scheduler.cancel(name.job)
        else:
            scheduler.cancel(name.job, elements=name.elements)
    except Refused as refused:
        if refused.status == NOT_FOUND:
            return None
        if refused.status == FORBIDDEN:
            return THEIRS
        if refused.status != CONFLICT:
            raise
    ids = jobs.ids_of(scheduler, [name])
    job = scheduler.job(next(iter(ids)) if len(ids) == 1 else name.job)
    array = job.get("elements")
    if array is not None and not jobs.has_ended(job):
        return f"{job['state']}: {jobs.elements_text(array)}"
    return str(job["state"])
