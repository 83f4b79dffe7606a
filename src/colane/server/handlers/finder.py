"""Jobs by their ids: live ones, ended ones, and elements of arrays that are no jobs of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from colane.model.job import Job, JobId
from colane.server.board import submission
from colane.server.board.arrays import ended_array_with, unmade
from colane.server.ground.problems import RefusedError
from colane.server.ground.sight import no_job
from colane.server.parts import Parts
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, AttemptRecord
from colane.server.store.store import FINISHED_JOBS, Document, UnreadableError, job_key
from colane.server.store.unreadable import read_one
from colane.server.views.jobs_and_nodes import finished_view


@dataclass(slots=True)
class JobFinder:
    """Finds jobs, whatever has become of them."""

    parts: Parts  # what the scheduler consists of

    async def unmade(self, job_id: JobId) -> Job | None:
        """Return an element of an array that is no job of its own, as one; None where there is no such element."""
        owner = self.parts.read_model.array_with(job_id)
        if owner is None and job_id not in self.parts.read_model.jobs:
            owner = await asyncio.to_thread(ended_array_with, self.parts.store, job_id)
        return None if owner is None else unmade(owner, job_id)

    async def ended(self, job_id: JobId) -> tuple[Document, Job]:
        """Return an ended job, and its record. Raises RefusedError: 404; 500, its record cannot be read."""
        try:
            ended = await asyncio.to_thread(read_one, self.parts.store, FINISHED_JOBS, job_key(job_id), _as_shown)
        except UnreadableError as error:
            raise RefusedError.because(500, f"the record of job {job_id} cannot be read: {error}") from error
        if ended is None:
            raise no_job(job_id)
        return ended

    async def any(self, job_id: JobId) -> Job:
        """Return a job, whatever has become of it. Raises RefusedError: 404; 500, its record cannot be read."""
        return self.parts.read_model.jobs.get(job_id) or await self.unmade(job_id) or (await self.ended(job_id))[1]

    async def with_attempts(self, job_id: JobId) -> tuple[Job, tuple[AttemptRecord, ...]]:
        """Return the same, and what is known of its attempts.

        Raises RefusedError: 404; 500, its record cannot be read.
        """
        known = self.parts.read_model.attempts.get(job_id, ())
        job = self.parts.read_model.jobs.get(job_id) or await self.unmade(job_id)
        if job is not None:
            return job, known
        ended, job = await self.ended(job_id)
        return job, ATTEMPTS.read(ended.get("attempts", ()))


def _as_shown(ended: Document) -> tuple[Document, Job]:
    """A record of a finished job with all that its views need."""
    finished_view(ended)
    submission.view(ended.get("submitted"))
    ATTEMPTS.read(ended.get("attempts", ()))
    return ended, documents.decode_job(ended["job"])
