"""Use by user: jobs that ended since a moment, GPU seconds of all their attempts, and what users have now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from colane.api.records import UsageObject
from colane.facts.job import waiting
from colane.model.job import Job, JobState
from colane.server.board.read_model import ReadModel
from colane.server.samples.keeper import SampleKeeper
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, Document, Store
from colane.server.store.unreadable import readable
from colane.server.views.sampled import Times, window_of

PAGE_ROWS: Final = 500


@dataclass(slots=True)
class Usage:
    """Of one user."""

    user: str  # the user's name, empty for jobs without one
    jobs: int = 0  # jobs of the user that have ended since then
    failed: int = 0  # those of them that neither succeeded nor were cancelled
    gpu_s: float = 0.0  # GPUs times seconds of all attempts of these, and of the user's live jobs
    running: int = 0  # jobs of the user that run now
    gpus: int = 0  # GPUs that they hold
    waiting: int = 0  # jobs of the user that wait now

    def add_ended(self, job: Job, ran_s: float) -> None:
        """Count a job that has ended."""
        self.jobs += 1
        self.failed += job.state not in {JobState.SUCCEEDED, JobState.CANCELLED}
        self.gpu_s += gpu_s(job, ran_s)

    def add_live(self, job: Job, now_s: float) -> None:
        """Count a job that waits or runs."""
        runs = job.placement is not None
        self.running += runs
        self.waiting += waiting(job)
        self.gpus += len(job.gpus_held)
        self.gpu_s += gpu_s(job, max(0.0, now_s - job.start_s) if runs and job.start_s is not None else 0.0)

    def shown(self) -> UsageObject:
        """As the API shows it."""
        return {
            "user": self.user,
            "jobs": self.jobs,
            "failed": self.failed,
            "gpu_s": self.gpu_s,
            "running": self.running,
            "gpus": self.gpus,
            "waiting": self.waiting,
            "gpu_busy_ratio": None,
        }


def gpu_s(job: Job, ran_s: float) -> float:
    """GPU seconds of all attempts of a job, the present or last of which has run so long."""
    earlier = sum(part.run_s * (part.gpus or job.spec.gpus) for part in job.totals.served)
    return earlier + ran_s * job.gpu_count


def usage(store: Store, read_model: ReadModel, since_s: float, now_s: float) -> list[UsageObject]:
    """Return what each user has had, the largest first; jobs are read page by page, the last ended first.

    Raises StoreError: the store cannot be read.
    """
    users: dict[str, Usage] = {}
    for job, ran_s in _ended_since(store, since_s):
        if job.array is None:
            users.setdefault(job.spec.user, Usage(job.spec.user)).add_ended(job, ran_s)
    for job in list(read_model.jobs.values()):
        users.setdefault(job.spec.user, Usage(job.spec.user)).add_live(job, now_s)
    return [one.shown() for one in sorted(users.values(), key=lambda one: (-one.gpu_s, one.user))]


LAST_JOBS: Final = 300
"""Of the last so many jobs that held GPUs it is told how they used them: each is a read of the samples."""


async def busy_ratios(
    store: Store, read_model: ReadModel, samples: SampleKeeper, since_s: float, now_s: float
) -> dict[str, float]:
    """Return the part of the time of their GPUs in which each user's last jobs used them, where that is known.

    Raises StoreError: the store cannot be read.
    """
    live = [(job, _present_s(job, now_s)) for job in list(read_model.jobs.values()) if job.gpus_held]
    ended = await asyncio.to_thread(lambda: list(islice(_ended_since(store, since_s), LAST_JOBS)))
    sums: dict[str, tuple[float, float]] = {}
    for job, ran_s in [*live[-LAST_JOBS:], *ended][:LAST_JOBS]:
        if job.gpu_count and ran_s > 0:
            columns = await samples.job(job.id, window_of(now_s, Times(job.first_start_s, job.end_s)))
            known = columns["busy_ratio"][~np.isnan(columns["busy_ratio"])]
            used, held = sums.get(job.spec.user, (0.0, 0.0))
            if known.size:
                own = gpu_s(job, ran_s)
                sums[job.spec.user] = used + own * float(known.mean()), held + own
    return {user: round(used / held, 4) for user, (used, held) in sums.items() if held > 0}


def _present_s(job: Job, now_s: float) -> float:
    return 0.0 if job.start_s is None else max(0.0, now_s - job.start_s)


def _ended_since(store: Store, since_s: float) -> Iterable[tuple[Job, float]]:
    before: str | None = None
    while page := store.page_back(FINISHED_JOBS, before, PAGE_ROWS):
        before = page[-1][0]
        yield from (one for one in readable(store, FINISHED_JOBS, page, _ran) if (one[0].end_s or 0.0) >= since_s)


def _ran(document: Document) -> tuple[Job, float]:
    """A job, and how long its last attempt has run by our clock; one that ended in the queue has had none."""
    job = documents.decode_job(document["job"])
    has_run = document["finished"].get("start_s") is not None and job.start_s is not None and job.end_s is not None
    return job, max(0.0, (job.end_s or 0.0) - (job.start_s or 0.0)) if has_run else 0.0
