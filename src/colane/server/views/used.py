"""How users' last jobs used what they asked for, together; and how the jobs that ended fared."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from colane.api.records import UsageObject
from colane.api.seeing import EndedAnswer, EndedJobObject, UserNoteObject, UserUsedObject
from colane.facts.job import waiting
from colane.facts.may import may_do
from colane.model.job import Job, JobState
from colane.model.sentences import sentence_of
from colane.model.time_spent import TimeSpent, time_spent
from colane.server.board.read_model import ReadModel
from colane.server.ground.access import Caller
from colane.server.ground.sight import Sight
from colane.server.samples.keeper import SampleKeeper
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, AttemptRecord
from colane.server.store.store import FINISHED_JOBS, Document, Store
from colane.server.store.unreadable import readable
from colane.server.views.efficiency import efficiency
from colane.server.views.sampled import Times, window_of

PAGE_ROWS: Final = 500
LAST_JOBS: Final = 300  # so many jobs are looked at: each is a read of the samples

ENDED_MAX: Final = 10_000  # of the last so many that ended it is told how they fared

NOTES_MAX: Final = 5


class _Seen(NamedTuple):
    job: Job
    attempts: tuple[AttemptRecord, ...]


async def used_of_asked(
    store: Store, read_model: ReadModel, samples: SampleKeeper, sight: Sight, since_s: float, now_s: float
) -> list[UserUsedObject]:
    """Return, of each user whose jobs the caller is told of, how much of what they asked for they used, and notes.

    Raises StoreError: the store cannot be read.
    """
    live = [
        _Seen(job, read_model.attempts.get(job.id, ()))
        for job in list(read_model.jobs.values())
        if job.placement is not None and sight.has(job.spec.user)
    ]
    ended = await asyncio.to_thread(lambda: list(islice(_ended(store, sight, since_s), LAST_JOBS)))
    users: dict[str, _User] = {}
    for one in [*live[-LAST_JOBS:], *ended][:LAST_JOBS]:
        job = one.job
        columns = await samples.job(job.id, window_of(now_s, Times(job.first_start_s, job.end_s)))
        found = efficiency(job, one.attempts, columns, read_model.nodes, now_s)
        if found["is_short"]:
            continue
        user = users.setdefault(job.spec.user, _User(job.spec.user))
        weight = found["ran_s"] * max(1, job.gpu_count)
        user.jobs += 1
        for row in found["rows"]:
            if row["ratio"] is not None:
                user.add(row["what"], min(1.0, row["ratio"]), weight)
        for note in found["notes"]:
            user.note(job, note["what"], note["sentence"], note["flag"], weight)
    return [users[name].shown() for name in sorted(users)]


class _User:
    """What is added up of one user."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.jobs = 0
        self._sums: dict[str, tuple[float, float]] = {}
        self._notes: dict[tuple[str, str], UserNoteObject] = {}

    def add(self, what: str, ratio: float, weight: float) -> None:
        """Count a job's part of what it asked for, by its GPU time."""
        used, whole = self._sums.get(what, (0.0, 0.0))
        self._sums[what] = used + ratio * weight, whole + weight

    def note(self, job: Job, what: str, sentence: str, flag: str, weight: float) -> None:
        """Keep a note; those of runs of one sweep count as one, told as the first says it."""
        key = (stem(job.spec.name), what)
        known = self._notes.get(key)
        if known is None:
            known = self._notes[key] = {
                "job": job.id, "name": job.spec.name, "jobs": 0, "what": what, "sentence": sentence, "flag": flag,
                "gpu_s": 0.0,
            }  # fmt: skip
        known["jobs"] += 1
        known["gpu_s"] += weight

    def shown(self) -> UserUsedObject:
        """As the API shows it; notes of most GPU time first."""
        ratios = {what: round(used / whole, 4) for what, (used, whole) in self._sums.items() if whole > 0}
        notes = sorted(self._notes.values(), key=lambda note: -note["gpu_s"])
        told, more = notes[:NOTES_MAX], max(0, len(notes) - NOTES_MAX)
        return {"user": self.name, "jobs": self.jobs, "ratios": ratios, "notes": told, "notes_left_out": more}


def stem(name: str) -> str:
    """What the runs of a sweep have in common: the name without the numbers at its end."""
    return re.sub(r"[-_.]?\d+$", "", name)


def _ended(store: Store, sight: Sight, since_s: float) -> Iterator[_Seen]:
    """Yield jobs that ended since, the last ended first."""
    before: str | None = None
    while page := store.page_back(FINISHED_JOBS, before, PAGE_ROWS):
        before = page[-1][0]
        for one in readable(store, FINISHED_JOBS, page, _read):
            if (one.job.end_s or 0.0) >= since_s and sight.has(one.job.spec.user):
                yield one


def _read(document: Document) -> _Seen:
    return _Seen(documents.decode_job(document["job"]), ATTEMPTS.read(document.get("attempts", ())))


def ended_jobs(store: Store, sight: Sight, since_s: float, limit: int, first: int = 0, state: str = "") -> EndedAnswer:
    """Return how the jobs that ended since then fared, and the last of them: of one state or all, from the `first` on.

    Raises StoreError: the store cannot be read.
    """
    all_ended = (one.job for one in _ended(store, sight, since_s) if one.job.array is None)
    jobs = list(islice(all_ended, ENDED_MAX))
    more = sum(1 for _ in all_ended)
    states: dict[str, int] = {}
    for job in jobs:
        states[job.state.value] = states.get(job.state.value, 0) + 1
    ran = [job for job in jobs if job.first_start_s is not None]
    spent = {job.id: time_spent(job.story, job.story_left_out, job.end_s or 0.0) for job in ran}
    slow = [_slowdown(job, spent[job.id].running_s) for job in ran if job.state is JobState.SUCCEEDED]
    shown = [job for job in jobs if state in {"", job.state.value}]
    return {
        "since_s": since_s,
        "count": len(jobs),
        "states": states,
        "waited_s": _quantiles(spent[job.id].queueing_s for job in ran),
        "took_s": _quantiles((job.end_s or 0.0) - job.submit_s for job in ran),
        "slowdown": _quantiles(one for one in slow if one is not None),
        "lost_s": sum(job.totals.lost_s for job in jobs),
        "preemptions": sum(job.totals.preemptions for job in jobs),
        "jobs": [_ended_object(job, sight.caller, spent.get(job.id)) for job in shown[first : first + limit]],
        "left_out": more > 0,
        "left_out_count": more,
    }


def _slowdown(job: Job, ran_s: float) -> float | None:
    """How long it took from its submission to its end, of the time that it ran."""
    return None if ran_s < 1 else ((job.end_s or 0.0) - job.submit_s) / ran_s


def _quantiles(values: Iterable[float]) -> dict[str, float] | None:
    known = sorted(values)
    if not known:
        return None
    return {"median": median(known), "p90": known[min(len(known) - 1, int(0.9 * len(known)))], "most": known[-1]}


def _ended_object(job: Job, caller: Caller, spent: TimeSpent | None) -> EndedJobObject:
    return {
        "id": job.id,
        "name": job.spec.name,
        "user": job.spec.user,
        "state": job.state.value,
        "end_s": job.end_s or 0.0,
        "waited_s": None if spent is None else spent.queueing_s,
        "took_s": (job.end_s or 0.0) - job.submit_s,
        "gpus": job.spec.gpus,
        "reason": sentence_of(job.reason) if job.reason is not None else "",
        "may": [*may_do(None, job, None, caller.asks_of(job.spec.user))],
    }


# -- Use by user: jobs that ended since a moment, GPU seconds of all their attempts, and what users have now.


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
