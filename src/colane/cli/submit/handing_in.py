"""Handing jobs in, and following them to their end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.submit.job_options import OPTION_OF
from colane.cli.submit.jobfile import JobFile
from colane.client.errors import Refused, SchedulerError
from colane.client.typed_fields import as_typed
from colane.model.job_spec import IfNever
from colane.model.limits import POOLS_LABEL

if TYPE_CHECKING:
    from colane.api.jobs import JobRequestObject
    from colane.client.client import Client


def send(scheduler: Client, file: JobFile, wanted: list[JobRequestObject], if_plan: str | None = None) -> list[int]:
    """Submit all or none; a refusal names the option, or the line of the file."""
    try:
        if file.is_batch or len(wanted) > 1:
            return scheduler.submit_batch(wanted, if_plan)
        return [scheduler.submit(wanted[0], if_plan)]
    except Refused as refused:
        if refused.status >= 500:
            raise
        raise MisuseError("; ".join(complaint(file, *problem) for problem in refused.problems)) from refused


def complaint(file: JobFile, field: str, message: str) -> str:
    """Return a complaint about a field with where that stands; a plan is no field of a file."""
    if field == "if_plan":
        return message if message.startswith("plan ") else f"--if-plan: {message}"
    return place(file, field, message)


def place(file: JobFile, field: str, message: str) -> str:
    """Return a complaint about a field with where that stands: in which line of the file, or in which option."""
    if not field:
        return message
    if file.is_typed(field):
        return as_typed(field, message, OPTION_OF)
    place, bare = file.where(field)
    return f"{place}: {bare}: {message}"


def tell(ids: list[int], file: JobFile, *, as_json: bool, wait: bool) -> None:
    """Name the ids; while we wait, standard output belongs to the job."""
    if as_json and not wait:
        output.print_json({"ids": ids} if file.is_batch else {"id": ids[0]})
        return
    for job_id in ids:
        (output.note if wait else output.say)(f"submitted job {job_id}")


def tell_start(scheduler: Client, job_id: int) -> None:
    """Say when a job that waits is expected to start."""
    with suppress(SchedulerError):  # one that has ended meanwhile, or a scheduler that does not say in time
        start = scheduler.start_of(job_id, changes=False)
        if start["starts_in_s"] != 0:
            output.note(f"note: {start['sentence']}")


def tell_pools(scheduler: Client, ids: list[int], wanted: list[JobRequestObject]) -> None:
    """Say which pools may start jobs that named several, and why others may not."""
    several = [job_id for job_id, job in zip(ids, wanted, strict=True) if "," in job.get("pool", "")]
    for job_id in several[:10]:
        told = scheduler.job(job_id)["labels"][POOLS_LABEL]
        output.note(f"note: job {job_id} starts in the first that can of {told}")


def tell_fates(ids: list[int], wanted: list[JobRequestObject]) -> None:
    """Say of jobs that wait for others what becomes of them where that can never come true."""
    waiting = [(job_id, job) for job_id, job in zip(ids, wanted, strict=True) if job.get("after")]
    for is_held, what in ((False, "cancelled (--if-never hold would hold it)"), (True, "held until colane release")):
        named = [str(job_id) for job_id, job in waiting if (job.get("if_never") == IfNever.HOLD) is is_held]
        if named:
            they = "job {} is" if len(named) == 1 else "jobs {} are"
            output.note(
                f"note: once a condition of --after can never come true, {they.format(', '.join(named))} {what}"
            )


def wait_for(scheduler: Client, ids: list[int], *, as_json: bool) -> int:
    """Follow to the end; return the exit code of the first job that failed, 0 of none."""
    from colane.cli.jobs.logs import follow_log  # noqa: PLC0415 - only when it waits

    try:
        if len(ids) == 1 and not as_json and scheduler.job(ids[0]).get("elements") is None:
            follow_log(scheduler, ids[0])
        ended = {job["id"]: job for job in jobs.until_ended(scheduler, ids)}
    except KeyboardInterrupt:
        named = " ".join(map(str, ids))
        output.note(f"not waiting any longer; the job goes on. To stop it: colane cancel {named}")
        raise
    in_order = [ended[job_id] for job_id in ids]
    if as_json:
        output.print_json(in_order if len(ids) > 1 else in_order[0])
    for job in in_order:
        output.note(f"job {job['id']} {job['state']}: {job['reason']}")
    return next((code for code in map(jobs.exit_code_of, in_order) if code), 0)
