"""`colane suspend`: keep jobs from going on for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.completing import complete_jobs
from colane.cli.errors import FailureError, MisuseError
from colane.cli.jobs import objects as jobs
from colane.client.errors import Refused
from colane.verbs.of_jobs import SUSPEND

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.client.client import Client

JobsArgument = Annotated[
    list[jobs.JobName],
    typer.Argument(
        metavar="JOB...",
        parser=jobs.parse_job_name,
        autocompletion=complete_jobs,
        show_default=False,
        help="Ids of the jobs; 12[3,7-9] are elements of array 12, @ is your last job.",
    ),
]

NOT_FOUND, CONFLICT = 404, 409
SHOWN: Final = ("id", "state", "suspended", "suspended_via", "on_host_bytes")

MOVE_MAX_S: Final = 60.0
"""How long the command waits for GPU memory to be moved: for the job's next step boundary, and for the driver."""

LOOK_EVERY_S: Final = 0.2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("suspend", epilog="Example: [bold]colane suspend 7 8[/bold]")(suspend)


def suspend(
    job: JobsArgument,
    to_host: Annotated[
        bool, typer.Option("--to-host", help="Move what running jobs have on their GPU to the host, and free the GPU.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Keep jobs from going on, until 'colane resume': those that wait do not start, those that run stop stepping.

    A running job stops at its next step boundary. It keeps its GPU memory and its GPUs, on which others that share
    them go on; time in which it is suspended does not count towards its time limit. One that is launching leaves its
    GPUs, and begins anew once it is resumed.

    With --to-host its GPU memory is moved to the host by the driver, and its GPU is free for others meanwhile. It
    comes back to the same GPU, once that has room. Jobs of one process on one GPU only.

    A policy may park a running job in that way to preempt it for another, whether or not it is --preemptible: 'colane
    why' says for which. It goes on by itself once its node has a GPU for it; 'colane suspend' keeps it off its GPUs.
    """
    change(
        job,
        lambda scheduler, each: scheduler.act(SUSPEND, each, to_host=to_host or None),
        to_host=to_host,
        as_json=as_json,
    )


def change(
    names: list[jobs.JobName], ask: Callable[[Client, int], None], *, to_host: bool = False, as_json: bool
) -> None:
    """Ask for a change of each job, and print their states and what was refused.

    Raises:
        MisuseError: Some are not there.
        FailureError: Some were refused.
    """
    with jobs.client() as scheduler:
        ids = jobs.ids_of(scheduler, names)
        refusals = {each: refused for each in ids if (refused := _ask(scheduler, each, ask)) is not None}
        deadline_s = time.monotonic() + MOVE_MAX_S
        found = [_settled(scheduler, each, deadline_s) for each in ids if each not in refusals]
    if as_json:
        output.print_json([{name: job[name] for name in SHOWN} for job in found])
    else:
        for job in found:
            output.say(f"job {jobs.name_of(job)}: {state_text(job)}")
    conflicts = [str(refused) for refused in refusals.values() if refused.status == CONFLICT]
    conflicts += [
        f"job {jobs.name_of(job)} is suspended, but {job['reason']}"
        for job in found
        if to_host and (job["state"] == "paused" and job["suspended"] and job.get("suspended_via") == "lane")
    ]
    unknown = [ids[each] for each, refused in refusals.items() if refused.status == NOT_FOUND]
    if conflicts:
        raise FailureError("; ".join([*conflicts, *(f"there is no job {each}" for each in unknown)]))
    if unknown:
        raise MisuseError(f"there is no job {', '.join(unknown)}")


def state_text(job: JobObject) -> str:
    """Return a job's state; what is not to be seen by that of a suspended one is said."""
    state, size_bytes, array = str(job["state"]), job.get("on_host_bytes"), job.get("elements")
    if array is not None:
        return f"{'held' if job['suspended'] else state}; {jobs.elements_text(array)}"
    if job["suspended"] and state == "queued":
        return f"{state} (held)"
    if size_bytes is not None:
        waits = "" if job["suspended"] else f"; waits for {', '.join(job['gpus'])}"
        return f"{state}, {output.size(size_bytes)} of GPU memory on the host{waits}"
    return f"{state}, its GPU memory is being moved to the host" if _is_moving(job) else state


def _is_moving(job: JobObject) -> bool:
    """Whether it is not known yet what becomes of its GPU memory."""
    asked = job["state"] == "paused" and job["suspended"] and job.get("suspended_via") == "host"
    return asked and job.get("on_host_bytes") is None


def _settled(scheduler: Client, job_id: int, deadline_s: float) -> JobObject:
    """Return a job once its memory has been moved, or cannot be, or that takes long."""
    job = scheduler.job(job_id)
    while _is_moving(job) and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)
        job = scheduler.job(job_id)
    return job


def _ask(scheduler: Client, job_id: int, ask: Callable[[Client, int], None]) -> Refused | None:
    try:
        ask(scheduler, job_id)
    except Refused as refused:
        if refused.status in (NOT_FOUND, CONFLICT):
            return refused
        raise
    return None
