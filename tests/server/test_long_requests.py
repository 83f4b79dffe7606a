"""What concerns thousands of jobs at once is done some jobs at a time, and other requests get in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colane.core.core import Core
from colane.core.events import CancelRequested, Event, Outcome
from colane.server.ground.yielding import ITEMS_AT_ONCE
from colane.server.views import listing
from colane.server.writer.changes import CANCELS_PER_TURN_MAX
from tests.server.answers import lasting
from tests.server.harness import SLEEP, Agents, node, world

MANY = 3 * CANCELS_PER_TURN_MAX
JOBS = [{**SLEEP, "name": f"j{number}"} for number in range(MANY)]


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Which jobs were cancelled in each step in which some were."""
    found, step = list[list[int]](), Core.step

    def counted(core: Core, events: list[Event], now_s: float, *, decides: bool = True) -> Outcome:
        jobs: list[int] = [event.job for event in events if isinstance(event, CancelRequested)]
        found.extend([jobs] if jobs else [])
        return step(core, events, now_s, decides=decides)

    monkeypatch.setattr(Core, "step", counted)
    return found


async def test_no_turn_cancels_more_than_some_jobs_and_others_get_in_between(cancelled: list[list[int]]) -> None:
    async with world() as w:
        ids = (await w.post("/jobs", JOBS)).json()["ids"]
        cancelling = asyncio.create_task(w.good("DELETE", "/jobs"))
        others = list[int]()
        while not cancelling.done():
            others.append(await w.submit(name="other"))
        assert [each for each in cancelling.result()["ids"] if each not in others] == ids
        assert max(map(len, cancelled)) == CANCELS_PER_TURN_MAX
        assert sorted(each for jobs in cancelled for each in jobs if each not in others) == ids
        left = [job["id"] for job in await w.good("GET", "/jobs")]
        assert len(left) >= 2, "those that came meanwhile stay"
        assert set(left) <= set(others)


async def test_elements_of_arrays_count(cancelled: list[list[int]]) -> None:
    async with world(agents=Agents()) as w:
        await w.good("POST", "/node", node(gpus=1))
        arrays = [{**job, "array": "1-40"} for job in JOBS[:30]]
        ids = (await w.post("/jobs", arrays)).json()["ids"]
        known = [job for job in await w.good("GET", "/live_jobs") if job["id"] not in ids]
        running = [job["id"] for job in known if job["state"] != "queued"]
        assert (await w.good("DELETE", "/jobs"))["ids"] == ids
        assert len(cancelled) > 1
        assert max(map(len, cancelled)) < CANCELS_PER_TURN_MAX + 40
        live = [job for job in await w.good("GET", "/live_jobs") if job["id"] not in ids]
        assert [job["id"] for job in live] == running, "what runs goes on"


async def test_a_key_that_was_answered_cancels_nothing_more(cancelled: list[list[int]]) -> None:
    async with world() as w:
        ids = (await w.post("/jobs", JOBS)).json()["ids"]
        headers = {"Idempotency-Key": "once"}
        first = await w.http.request("DELETE", "/jobs", headers=headers)
        await w.post("/jobs", JOBS)
        steps = len(cancelled)
        again = await w.http.request("DELETE", "/jobs", headers=headers)
        assert first.json() == again.json() == {"ids": ids}
        assert len(cancelled) == steps
        assert len(await w.good("GET", "/jobs")) == MANY


@asynccontextmanager
async def at_once(of: Callable[[], int]) -> AsyncIterator[list[int]]:
    """How far something that is counted went on between two looks of the loop, each time."""
    seen = list[int]()

    async def look() -> None:
        before = of()
        while True:
            await asyncio.sleep(0)
            now = of()
            seen.append(now - before)
            before = now

    looking = asyncio.create_task(look())
    yield seen
    looking.cancel()


async def test_a_long_listing_is_rendered_some_jobs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, view_of = 0, listing.view_of

    def counted(*given: Any) -> Any:
        nonlocal shown
        shown += 1
        return view_of(*given)

    monkeypatch.setattr(listing, "view_of", counted)
    async with world() as w:
        ids = (await w.post("/jobs", [{**job, "name": 'ä\u2028"'} for job in JOBS])).json()["ids"]
        async with at_once(lambda: shown) as seen:
            answer = await w.http.get("/listing?limit=10000")
        assert shown == MANY
        assert max(seen) == ITEMS_AT_ONCE
        assert [job["id"] for job in answer.json()["jobs"]] == ids
        whole = await listing.listing(w.service.store, w.service.driver, listing.Wanted(10_000))
        assert lasting(json.loads(answer.content)) == lasting(json.loads(json.dumps(whole)))
