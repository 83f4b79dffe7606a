"""Being at the terminal of a job, from the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colane.cli import output
from colane.cli.jobs import objects as jobs

if TYPE_CHECKING:
    from colane.client.client import Client


def sit(scheduler: Client, job_id: int, name: str, *, ends_job: bool = False) -> int:
    """Be there until the job has ended or is left; return the exit code.

    Raises Refused: it has no terminal, or is another user's.
    """
    from colane.client.terminal import Seat  # noqa: PLC0415 - only where one is

    if not Seat(jobs.client, job_id, output.note).sit(ends_job=ends_job):
        output.note(f"left job {name}, which goes on. Back: colane attach {name}. To stop it: colane cancel {name}")
        return 0
    (ended,) = jobs.until_ended(scheduler, [job_id])
    output.note(f"job {name} {ended['state']}: {ended['reason']}")
    return jobs.exit_code_of(ended)


def sit_from_submission(scheduler: Client, job_id: int) -> int:
    """The same for a job that was just submitted: who gives up waiting for it has no use for it."""
    try:
        return sit(scheduler, job_id, str(job_id))
    except KeyboardInterrupt:
        scheduler.cancel(job_id)
        output.note(f"cancelled job {job_id}, as its terminal is waited for no more")
        raise
