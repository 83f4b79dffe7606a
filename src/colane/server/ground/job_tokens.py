"""Tokens of jobs: with its own a job uses `colane` as its owner would, until its attempt ends.

The scheduler keeps none. A token is the job's id and attempt with a code over them (HMAC-SHA256) whose key
lies in a file of its own beside the store, in no copy of it; so it counts exactly as long as the attempt that it names
is the job's present one and has a place. An agent that asks twice is given the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from colane.model.job import Job, JobId
from colane.model.job_spec import JobKind
from colane.server.ground.access import Caller, Role

KEY_BYTES: Final = 32
_TOKEN: Final = re.compile(r"job-(?P<job>[0-9]{1,16})-(?P<attempt>[0-9]{1,16})-[0-9a-f]{64}", re.ASCII)


def new_key() -> bytes:
    """Return a key for a scheduler that has none."""
    return secrets.token_bytes(KEY_BYTES)


def is_of_job(token: str) -> bool:
    """Whether this is the form of a job's token, so that a refusal can say what has become of it."""
    return _TOKEN.fullmatch(token) is not None


@dataclass(frozen=True, slots=True)
class JobTokens:
    """Makes tokens of jobs and knows them again."""

    key: bytes = field(repr=False)  # what only this scheduler knows
    jobs: Callable[[], Mapping[JobId, Job]]  # gives the live jobs as they are now

    def token_of(self, job: Job) -> str | None:
        """Return the token of a job's present attempt.

        None of a job without a place or an owner, and of one that serves requests: what it does, those that call it
        may have asked for, and it has no end at which its token would be revoked.
        """
        if job.placement is None or not job.spec.user or job.spec.kind is JobKind.INFERENCE:
            return None
        # When it was submitted tells it from a job that is given its id once an older store is put back.
        named = json.dumps([job.id, job.attempt, job.submit_s, job.spec.user]).encode()
        return f"job-{job.id}-{job.attempt}-{hmac.new(self.key, named, hashlib.sha256).hexdigest()}"

    def caller(self, token: str) -> Caller | None:
        """Return the job that holds a token, as its owner; None once its attempt is over.

        It is never an operator, whatever its owner is.
        """
        found = _TOKEN.fullmatch(token)
        job = None if found is None else self.jobs().get(JobId(int(found["job"])))
        expected = None if job is None else self.token_of(job)
        if job is None or expected is None or not hmac.compare_digest(expected, token):
            return None
        return Caller(job.spec.user, Role.USER, job.id)
