"""One record that cannot be read keeps no other from its work."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.store.store import (
    ASSIGNED_JOBS,
    COLLECTIONS,
    FINISHED_JOBS,
    LENGTHS,
    NODES,
    PROFILES,
    RUN_TIMES,
    SUBMITTED_JOBS,
    Put,
    StoreError,
    Transaction,
    job_key,
)
from tests.memory_store import MemoryStore
from tests.server.harness import finished, launched, node, report, world

ODD: tuple[dict[str, Any], ...] = ({}, {"id": "seven"}, {"job": None}, {"job": {"spec": 7}, "finished": []}, {"key": 3})


def put(store: MemoryStore, collection: str, key: str, body: dict[str, Any]) -> None:
    store.commit(Transaction([Put(collection, key, body)]))


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_an_odd_finished_record_breaks_no_listing(odd: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with world(store) as w:
        await w.good("POST", "/node", node())
        for _ in range(3):
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job)))
            await w.good("POST", "/finished_job", finished(job))
        put(store, FINISHED_JOBS, job_key(2), odd)
        with caplog.at_level(logging.ERROR, logger="colane"):
            assert [job["id"] for job in await w.good("GET", "/finished_jobs")] == [1, 3]
        assert f"finished_jobs {job_key(2)} cannot be read" in caplog.text
        status, detail = await w.refused("GET", "/job/2")
        assert status == 500
        assert detail.startswith("the record of job 2 cannot be read")
        assert (await w.good("GET", "/health"))["unreadable"] == ["finished_jobs 2"]


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("collection", [SUBMITTED_JOBS, LENGTHS, PROFILES, RUN_TIMES])
async def test_an_odd_live_record_stops_no_start(collection: str, odd: dict[str, Any]) -> None:
    store = MemoryStore()
    async with world(store) as w:
        await w.submit(pool="nobody")
    put(store, collection, job_key(7), odd)
    async with world(store) as w:
        assert [job["id"] for job in await w.good("GET", "/jobs")] == [1]
        assert await w.submit(pool="nobody") == 2
    assert store.get(collection, job_key(7)) == odd


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize("collection", [ASSIGNED_JOBS, NODES])
async def test_an_odd_record_of_what_runs_is_not_done_without(collection: str, odd: dict[str, Any]) -> None:
    store = MemoryStore()
    async with world(store) as w:
        await w.submit(pool="nobody")
    put(store, collection, job_key(7), odd)
    with pytest.raises(StoreError, match=f"{collection} {job_key(7)} cannot be read"):
        make_service(store, ServiceConfig(policy="fifo", workdir="/srv"))


async def test_a_store_that_names_a_policy_that_is_gone_opens_and_tells_it() -> None:
    store = MemoryStore()
    async with world(store) as w:
        await w.good("POST", "/node", node())
        job = await w.submit()
        await w.good("POST", "/node/n1/report", report(launched(job)))
        await w.good("POST", "/finished_job", finished(job))
        queued = await w.submit(gpus=1, hold=True)
    for collection in COLLECTIONS:
        for key, body in list(store.read_all(collection)):
            put(store, collection, key, json.loads(json.dumps(body).replace('"fifo"', '"colane-0.2"')))
    async with world(store, policy="colane") as w:
        assert (await w.good("GET", f"/job/{queued}"))["state"] == "queued"
        assert (await w.good("GET", "/job/1"))["policy"] == "colane-0.2"
        assert (await w.good("GET", "/health"))["unreadable"] == []
        assert await w.submit() == 3
