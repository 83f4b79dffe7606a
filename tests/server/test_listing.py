"""Jobs as a screen shows them: bounded however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colane.lab.report.parsing import parse_records
from colane.server.store.store import FINISHED_JOBS, Document
from tests.memory_store import MemoryStore
from tests.server.harness import World, finished, launched, node, report, without_own, world


def ids(listed: dict[str, Any]) -> list[int]:
    return [job["id"] for job in listed["jobs"]]


async def end(w: World, *jobs: int) -> None:
    """Let these jobs, one after another, run and end."""
    for job in jobs:
        await w.good("POST", "/node/n1/report", report(launched(job)))
        await w.good("POST", "/finished_job", finished(job))


async def test_what_is_shown_and_what_is_left_out() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        for _ in range(12):
            await w.submit()
        await end(w, 1, 2, 3, 4)
        assert ids(await w.good("GET", "/listing")) == list(range(5, 13))
        listed = await w.good("GET", "/listing?limit=3&ended=true")
        assert ids(listed) == [2, 3, 4, 5, 6, 7, 8]
        assert listed["left_out"] == {"running": 0, "queued": 4, "ended": True}
        whole = await w.good("GET", "/listing?limit=100&ended=true")
        assert ids(whole) == list(range(1, 13))
        assert whole["left_out"] == {"running": 0, "queued": 0, "ended": False}
        assert without_own(whole["jobs"][0]) == without_own(await w.good("GET", "/job/1"))
        last, why = await w.good("GET", "/job/12"), await w.good("GET", "/job/12/why")
        assert without_own(whole["jobs"][-1]) == {**without_own(last), "why": why["why"], "reason": why["sentence"]}


async def test_only_the_users_and_labels_asked_for() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        for number in range(8):
            await w.submit(user="ann" if number % 2 else "bob", labels={"run": "a" if number < 6 else 'b "c"'})
        await end(w, 1, 2, 3)
        assert ids(await w.good("GET", "/listing?ended=true&user=ann")) == [2, 4, 6, 8]
        assert ids(await w.good("GET", "/listing?ended=true&user=bob&label=run=a&limit=1")) == [3, 5]
        assert ids(await w.good("GET", '/listing?ended=true&label=run=b "c"')) == [7, 8]
        assert ids(await w.good("GET", "/listing?ended=true&user=ann&label=user=ann")) == []


class CountingReads(MemoryStore):
    """Counts the documents it gives out in pages."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        page = super().page_back(collection, before, limit, containing)
        self.given += len(page)
        return page


async def test_of_many_ended_jobs_only_those_shown_are_read() -> None:
    store = CountingReads()
    async with world(store) as w:
        await w.good("POST", "/node", node())
        for _ in range(30):
            await w.submit()
        await end(w, *range(1, 21))
        assert store.count(FINISHED_JOBS) == 20
        assert ids(await w.good("GET", "/listing?ended=true&limit=5"))[:5] == [16, 17, 18, 19, 20]
        assert store.given == 6


async def test_a_wrong_limit_is_refused() -> None:
    async with world() as w:
        status, problem = await w.refused("GET", "/listing?limit=0")
        assert status == 422
        assert "limit" in str(problem)


async def test_a_report_takes_whatever_the_scheduler_says_of_ended_jobs() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(labels={"run": "a"})
        await end(w, 1)
        assert [record.id for record in parse_records(await w.good("GET", "/finished_jobs"))] == [1]


async def test_live_jobs_come_in_pages() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        for _ in range(8):
            await w.submit()
        for path, known in (("/jobs", [2, 3, 4, 5, 6, 7, 8]), ("/live_jobs", [1, 2, 3, 4, 5, 6, 7, 8])):
            seen, after = [], 0
            while page := await w.good("GET", f"{path}?after={after}&limit=3"):
                assert len(page) <= 3
                seen += [job["id"] for job in page]
                after = seen[-1]
            assert seen == known
            assert [job["id"] for job in await w.good("GET", path)] == known
