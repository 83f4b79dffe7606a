"""Records of finished jobs go when they are old or too many, oldest first, with a line in the audit log."""

from __future__ import annotations

import pytest

from colane.server.store.store import FINISHED_JOBS, Put, Transaction, job_key
from colane.server.tending.cleaning import REMOVED_AT_ONCE, outdated
from colane.settings.readers import Retention, parse_retention
from tests.memory_store import MemoryStore

from .harness import finished, launched, node, report, world

DAY_S = 86_400.0


def store_of(*ends_s: float | None) -> MemoryStore:
    store = MemoryStore()
    puts = [Put(FINISHED_JOBS, job_key(n), {"job": {"end_s": end_s}}) for n, end_s in enumerate(ends_s, 1)]
    store.commit(Transaction(puts=puts))
    return store


def removed(store: MemoryStore, keep: Retention, now_s: float = 100.0) -> list[int]:
    return [int(record.key) for batch in outdated(store, keep, now_s) for record in batch]


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("all", Retention()),
        ("30d", Retention(age_s=30 * DAY_S)),
        ("1h30m", Retention(age_s=5400.0)),
        ("10000", Retention(jobs=10_000)),
        ("0", Retention(jobs=0)),
    ],
)
def test_what_to_keep_is_a_time_a_number_or_all(text: str, keep: Retention) -> None:
    assert parse_retention(text) == keep


@pytest.mark.parametrize("text", ["", "forever", "-5", "3 jobs", "30days"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be all, a duration such as 30d, or a number of jobs"):
        parse_retention(text)


def test_old_ones_go_by_age() -> None:
    store = store_of(10.0, 80.0, 20.0, None, 99.0)
    assert removed(store, Retention(age_s=50.0)) == [1, 3]
    assert removed(store, Retention(age_s=90.1)) == []
    assert removed(store, Retention()) == []


def test_the_first_ones_go_by_number() -> None:
    store = store_of(10.0, 20.0, 30.0)
    assert removed(store, Retention(jobs=2)) == [1]
    assert removed(store, Retention(jobs=3)) == []
    assert removed(store, Retention(jobs=0)) == [1, 2, 3]


def test_each_turn_takes_a_bounded_number() -> None:
    store = store_of(*[1.0] * (2 * REMOVED_AT_ONCE + 5))
    sizes = [len(batch) for batch in outdated(store, Retention(jobs=3), 0.0)]
    assert sizes == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 2]


async def test_the_service_forgets_them_and_says_so() -> None:
    async with world(keep_finished=Retention(jobs=1)) as one:
        await one.good("POST", "/node", node())
        for _ in range(2):
            job = await one.submit()
            await one.good("POST", "/node/n1/report", report(launched(job)))
            await one.good("POST", "/finished_job", finished(job))
        await one.service.cleaning.forget_old_jobs()
        line = await one.line(lambda line: line.kind == "old-jobs-removed")
        assert line.body == {"jobs": 1, "keep": "1"}
        assert [record["id"] for record in await one.good("GET", "/finished_jobs")] == [2]
        assert (await one.refused("GET", "/job/1"))[0] == 404
        assert await one.state(2) == "succeeded"
