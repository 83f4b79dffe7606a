"""Waiting for a job's end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from colane.integrations.slurm.contact import SlurmError
from colane.model.phases import ENDED

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.client.client import Client

SIGNALLED = 128


def until_ended(scheduler: Client, job_id: int) -> JobObject:
    """Return a job once it has ended; waits on the scheduler's events.

    Raises SlurmError: the scheduler has stopped before.
    """
    after = int(scheduler.health()["events"])
    job = scheduler.job(job_id)
    if job["state"] in ENDED:
        return job
    for event in scheduler.events(after):
        if event.kind == "job" and job_id <= event.body["job"]:
            job = scheduler.job(job_id)
            if job["state"] in ENDED:
                return job
    raise SlurmError(f"the scheduler stopped before job {job_id} had ended")


def copy_log(scheduler: Client, job_id: int) -> None:
    """Write what a job writes, as it does, until it has ended."""
    for part in scheduler.follow_log(job_id):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()


def exit_code(job: JobObject) -> int:
    """Return the code a shell would report of an ended job's process; never 0 of one that did not succeed."""
    if job["state"] == "succeeded":
        return 0
    number = job.get("signal")
    return job.get("exit_code") or (SIGNALLED + number if number else 1)
