"""Jobs as a screen shows them: all that run, the first that wait, the last that ended, and how many are left out.

However many jobs there are, only those shown are rendered, and of the ended ones only those are read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from colane.api.forms import UNREADABLE
from colane.api.jobs import FactsObject, JobObject, ListingAnswer, ReasonObject
from colane.core.cluster.co_runners import Pacing
from colane.facts.job import expected_of, job_facts
from colane.facts.may import may_do
from colane.model.job import Job, JobId, JobState
from colane.server.ground.access import Caller
from colane.server.ground.sight import Sight
from colane.server.ground.yielding import in_slices
from colane.server.store.store import FINISHED_JOBS, Document, Readable, Store, job_key
from colane.server.store.unreadable import readable
from colane.server.views.jobs_and_nodes import finished_view, job_view
from colane.server.writer.driver import LiveDriver
from colane.server.writer.ledger import explain

WHY_MAX: Final = 20  # each present reason is a question to the policy, so only the first in line are asked for

PAGE_ROWS: Final = 500
PASSING_ROWS: Final = 2
NO_REASON: Final[ReasonObject] = {"why": None, "sentence": "", "facts": {}, "jobs": []}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs, and how many of each sort."""

    limit: int  # at most so many that run, that wait, and that have ended
    ended: bool = False  # whether ended ones are wanted at all
    user: str | None = None  # only this user's; None for all
    labels: Mapping[str, str] = field(default_factory=dict)  # only jobs with all of these
    sight: Sight | None = None  # only jobs that this caller is told of
    elements: bool = True  # whether elements of arrays are jobs as others; else an array stands for them

    def has(self, user: str, labels: Mapping[str, Any]) -> bool:
        """Whether a job is of those asked for."""
        if self.user not in {None, user} or not (self.sight is None or self.sight.has(user)):
            return False
        return all(labels.get(name) == value for name, value in self.labels.items())

    def shown(self, document: Document) -> JobObject | None:
        """Return the record of a finished job that is asked for."""
        spec = document["job"]["spec"]
        return finished_view(document) if self.has(spec["user"], spec["labels"]) else None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Live jobs that are shown, in order of id, and how many of them are not."""

    shown: list[Job]
    running_left_out: int
    queued_left_out: int


def choose(jobs: Iterable[Job], wanted: Wanted) -> Chosen:
    """Choose among live jobs."""
    known = sorted(
        (job for job in jobs if wanted.has(job.spec.user, job.spec.labels) and (wanted.elements or not job.element)),
        key=lambda job: job.id,
    )
    queued = [job for job in known if job.state is JobState.QUEUED]
    placed = [job for job in known if job.state is not JobState.QUEUED]
    shown = sorted([*placed[: wanted.limit], *queued[: wanted.limit]], key=lambda job: job.id)
    return Chosen(shown, max(0, len(placed) - wanted.limit), max(0, len(queued) - wanted.limit))


async def listing(store: Store, driver: LiveDriver, wanted: Wanted) -> ListingAnswer:
    """Return the jobs asked for, in order of id but ended ones first, and how many are left out.

    Raises StoreError: the store cannot be read.
    """
    ended, more = await asyncio.to_thread(last_ended, store, wanted) if wanted.ended else ([], False)
    chosen = choose(driver.read_model.jobs.values(), wanted)
    live = {job.id for job in chosen.shown}
    found = [one async for one in _views(driver, chosen.shown)]
    return {
        "jobs": [*(job for job in ended if job["id"] not in live), *found],
        "left_out": {"running": chosen.running_left_out, "queued": chosen.queued_left_out, "ended": more},
    }


async def _views(driver: LiveDriver, shown: Sequence[Job]) -> AsyncIterator[JobObject]:
    """Views with the present reasons of the first that wait: what a view brings is from the last move.

    Others go on after each question to the policy, and after some views without.
    """
    left = WHY_MAX
    async for part in in_slices(shown):
        for job in part:
            view = view_of(driver, job)
            if job.state is JobState.QUEUED and left:
                left -= 1
                reason = why_live(driver, job)
                view["why"], view["reason"] = reason["why"], reason["sentence"]
                await asyncio.sleep(0)
            yield view


def facts_of(driver: LiveDriver, job: Job, pacing: Pacing | None, elements: Sequence[Job] = ()) -> FactsObject:
    """What is told of a live job, wherever it is shown; `elements` of an array are those that are live jobs."""
    lengths = driver.core.state.beliefs.lengths if driver.is_ready else None
    shown = driver.shown.get(job.id)
    return job_facts(job, driver.progress.get(job.id), pacing, driver.now(), lengths, elements, shown)


def start_text(driver: LiveDriver, job: Job) -> str:
    """Return when a job that waits is expected to start, in words; empty where that was not looked at yet."""
    start, _ = expected_of(driver.shown.get(job.id), driver.now())
    return "" if start is None else f"{'start' if start['p50_s'] is None else 'starts'} {start['sentence']}"


def may_of(driver: LiveDriver, job: Job, caller: Caller, elements: Sequence[Job] = ()) -> list[str]:
    """What a caller may do with a job now, live or ended."""
    state = driver.core.state if driver.is_ready else None
    return [*may_do(state, job, driver.progress.get(job.id), caller.asks_of(job.spec.user), elements)]


def view_of(driver: LiveDriver, job: Job) -> JobObject:
    """Return a live job as the API shows it."""
    read_model, pacing = driver.read_model, driver.pacing(job.id)
    name, progress = read_model.model_of(job), driver.progress.get(job.id)
    elements = read_model.elements_of(job.id) if job.array is not None else ()
    facts = facts_of(driver, job, pacing, elements)
    return job_view(job, name, driver.decider.name, facts, progress, pacing, elements)


def why_live(driver: LiveDriver, job: Job) -> ReasonObject:
    """Return why a live job is where it is; of one that has just ended, why it was there."""
    core, now_s = driver.core, driver.now()
    if job.id in core.state.jobs:
        pools = [way.pool for way in job.spec.pools] if job.id in core.state.roaming else [job.spec.pool]
        told = explain(core.why_in(job.id, pools[0], now_s))
        others = [f"; in pool {pool}: {explain(core.why_in(job.id, pool, now_s))['sentence']}" for pool in pools[1:]]
        return {**told, "sentence": told["sentence"] + "".join(others)}
    return explain(job.reason) if job.reason else NO_REASON


BACK_MAX: Final = 10_000  # how far back a user may count their own jobs


def last_of(user: str, live: Iterable[JobId], store: Readable, back: int) -> JobId:
    """Return the job that a user submitted last, or so many before it, ended or not; elements of arrays do not count.

    Args:
        user: Whose.
        live: Live jobs of this user's that are no elements.
        store: Where ended ones are.
        back: How many jobs before the last.

    Raises:
        ValueError: There is none.
        StoreError: The store cannot be read.
    """
    name = f"@~{back}" if back else "@"
    if back > BACK_MAX:
        raise ValueError(f"{name} is too far back: give the job's id")
    ids = sorted(live, reverse=True)
    oldest = ids[back] if back < len(ids) else JobId(0)
    ended, _ = last_ended(store, Wanted(back + 1, ended=True, user=user, elements=False), after=oldest)
    ids = sorted({*ids, *(JobId(each["id"]) for each in ended)}, reverse=True)
    if len(ids) <= back:
        raise ValueError(f"{name} is no job: {user or 'this user'} has submitted {len(ids)} that are still known")
    return ids[back]


def last_ended(store: Readable, wanted: Wanted, after: int = 0) -> tuple[list[JobObject], bool]:
    """Return the last jobs that have ended, in order of id, and whether there are more; none far below id `after`.

    Raises StoreError: the store cannot be read.
    """
    found: list[JobObject] = []
    before: str | None = None
    pairs = [*wanted.labels.items(), *([("user", wanted.user)] if wanted.user is not None else [])]
    texts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in pairs]
    whole = rows = min(PAGE_ROWS, wanted.limit + 1)
    while page := store.page_back(FINISHED_JOBS, before, rows, texts):
        before = page[-1][0]
        if not wanted.elements:
            page, before, is_passing = _of_no_array(page)
            rows = PASSING_ROWS if is_passing else whole
        found += filter(None, readable(store, FINISHED_JOBS, page, wanted.shown))
        if len(found) > wanted.limit or before <= job_key(after):
            break
    return found[: wanted.limit][::-1], len(found) > wanted.limit


def _of_no_array(page: list[tuple[str, Document]]) -> tuple[list[tuple[str, Document]], str, bool]:
    """Leave elements of arrays out of a page that goes back, and say from where to go on: each array is passed at once.

    The records of an array's elements stand behind its own, and nothing stands between them. Also returned is whether
    one was passed last: then its own record comes next, and perhaps the last element of another.
    """
    kept, passed = list[tuple[str, Document]](), None
    for key, document in page:
        array_id = _array_of(document)
        if array_id is None:
            kept.append((key, document))
        passed = array_id
    return kept, page[-1][0] if passed is None else job_key(passed + 1), passed is not None


def _array_of(document: Document) -> int | None:
    """The array of which a record is an element's; None of any other job, and of a record that does not say it."""
    try:
        element = document["job"].get("element")
        return None if element is None else int(element["array"])
    except UNREADABLE:
        return None


def finished(store: Store, wanted: Wanted, after: int) -> Iterator[JobObject]:
    """Yield records of finished jobs with ids above `after`, in order of id, read page by page.

    Raises StoreError: the store cannot be read.
    """
    key = job_key(after)
    while page := store.page(FINISHED_JOBS, key, PAGE_ROWS):
        yield from filter(None, readable(store, FINISHED_JOBS, page, wanted.shown))
        key = page[-1][0]
