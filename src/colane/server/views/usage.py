"""Use by user: jobs that ended since a moment, GPU seconds of all their attempts, and what users have now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from colane.api.records import UsageObject
from colane.model.arrays import number_of
from colane.model.job import Job, JobState
from colane.server.store import documents
from colane.server.store.store import FINISHED_JOBS, Document, Store
from colane.server.store.unreadable import readable
from colane.server.writer.board import ReadModel

PAGE_ROWS: Final = 500


@dataclass(slots=True)
class Usage:
    """Of one user.

    Attributes:
        user: The user's name, empty for jobs without one.
        jobs: Jobs of the user that have ended since then.
        failed: Those of them that neither succeeded nor were cancelled.
        gpu_s: GPUs times seconds of all attempts of these, and of the user's live jobs.
        running: Jobs of the user that run now.
        gpus: GPUs that they hold.
        waiting: Jobs of the user that wait now.
    """

    user: str
    jobs: int = 0
    failed: int = 0
    gpu_s: float = 0.0
    running: int = 0
    gpus: int = 0
    waiting: int = 0

    def add_ended(self, job: Job, ran_s: float) -> None:
        """Count a job that has ended."""
        self.jobs += 1
        self.failed += job.state not in {JobState.SUCCEEDED, JobState.CANCELLED}
        self.gpu_s += gpu_s(job, ran_s)

    def add_live(self, job: Job, now_s: float) -> None:
        """Count a job that waits or runs."""
        runs = job.placement is not None
        self.running += runs
        self.waiting += not runs
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
        }


def gpu_s(job: Job, ran_s: float) -> float:
    """GPU seconds of all attempts of a job, the present or last of which has run so long."""
    earlier = sum(part.run_s * (part.gpus or job.spec.gpus) for part in job.totals.served)
    return earlier + ran_s * job.gpu_count


def usage(store: Store, read_model: ReadModel, since_s: float, now_s: float) -> list[UsageObject]:
    """Return what each user has had, the largest first; jobs are read page by page, the last ended first.

    Raises:
        StoreError: The store cannot be read.
    """
    users: dict[str, Usage] = {}
    for job, ran_s in _ended_since(store, since_s):
        if job.array is None:
            users.setdefault(job.spec.user, Usage(job.spec.user)).add_ended(job, ran_s)
    for job in list(read_model.jobs.values()):
        one = users.setdefault(job.spec.user, Usage(job.spec.user))
        if job.array is None:
            one.add_live(job, now_s)
        else:
            one.waiting += number_of(job.array.pending)
    return [one.shown() for one in sorted(users.values(), key=lambda one: (-one.gpu_s, one.user))]


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
