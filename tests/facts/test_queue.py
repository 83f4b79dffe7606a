"""The law of facts: of one moment, every screen tells the same number of jobs that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colane.model.choices import MetricNames
from colane.model.job import JobState
from colane.server.tending.counting import counted
from tests.facts import test_screens as of_jobs
from tests.server.harness import World, node, world
from tests.server.test_metrics import scrape

WAITING: dict[str, tuple[dict[str, Any], ...]] = {
    "jobs": ({}, {"user": "ann"}, {}), "held": ({"hold": True}, {}), "array": ({"array": "0-9"}, {}),
    "array that is held": ({"array": "0-9", "hold": True},), "array, a few at a time": ({"array": "0-9%2"},),
    "after another": ({}, {"after": "ok:1"}), "gangs": ({"gpus": 2}, {"gpus": 2, "user": "ann"}),
}  # fmt: skip


@asynccontextmanager
async def scene(kind: str) -> AsyncIterator[World]:
    if kind in of_jobs.KINDS:
        async with of_jobs.scene(kind, metrics_names=frozenset(MetricNames)) as (w, _):
            yield w
        return
    async with world(policy="fifo", metrics_names=frozenset(MetricNames)) as w:
        await w.good("POST", "/node", node(gpus=2))
        for job in WAITING[kind]:
            await w.submit(**job)
        yield w


@pytest.mark.parametrize("kind", [*of_jobs.KINDS, *WAITING])
async def test_every_screen_tells_the_same_number_of_jobs_that_wait(kind: str) -> None:
    async with scene(kind) as w:
        found = await scrape(w)
        overview = await w.good("GET", "/overview")
        board = w.service.driver.read_model
        queued = [job for job in board.jobs.values() if job.state is JobState.QUEUED]
        arrays = [job.array for job in queued if job.array is not None]
        wait = len(queued) - len(arrays) + sum(last - first + 1 for one in arrays for first, last in one.pending)
        if kind in WAITING:
            assert wait > 0
        told = {
            "overview": overview["waiting"],
            "why": sum(one["count"] for one in overview["why_waiting"]),
            "health": (await w.good("GET", "/health"))["queued"],
            "usage": sum(one["waiting"] for one in await w.good("GET", "/usage?since_s=0")),
            "counted": counted(board, w.service.samples, 0.0).waiting,
            "users'": sum(found["colane_user_waiting_jobs"].values()),
            "cluster's": found["colane_waiting_jobs"][()],
            "by reason": sum(found.get("colane_waiting_jobs_by_reason", {}).values()),
            "slurm's": found["slurm_jobs_pending"][()],
            "slurm's users'": sum(found["slurm_user_jobs_pending"].values()),
            "slurm's pools'": sum(found["slurm_partition_jobs_pending"].values()),
            "slurm's line": found["slurm_schedule_queue_len"][()],
        }
        assert told == dict.fromkeys(told, wait)
