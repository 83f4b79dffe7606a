"""kill -9 of the scheduler, of the agent, of both, at random moments of a running batch of real processes.

Every job ends exactly once, none is lost, none runs twice, and devices are free at the end. A failure prints its seed:

    pytest tests/faults -k 'seed-3'
"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from colane.api.jobs import JobObject
from tests.examples import FUZZ

from .cluster import WAIT_MAX_S, Cluster

JOBS = 24
FAULTS = 9
SEEDS = range(3 * max(1, FUZZ))
"""3 batches of 9 faults, and `COLANE_FUZZ` times as many."""

SCRIPT = 'echo "start $COLANE_JOB_ID $COLANE_ATTEMPT" > "$1"; sleep "$2"; echo "end $COLANE_JOB_ID" > "$1"; exit "$3"'


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    running = Cluster(tmp_path, policy=request.param, devices="cpu:2:1GB")
    running.start("server")
    running.client()
    running.start("agent")
    yield running
    running.close()


def job(pipe: Path, random: Random) -> dict[str, Any]:
    length_s, code = f"{random.uniform(0.0, 0.6):.2f}", str(random.choice((0, 0, 0, 7)))
    return {"name": "tiny", "command": ["sh", "-c", SCRIPT, "tiny", str(pipe), length_s, code], "workdir": "/"}


def ended(cluster: Cluster, count: int) -> list[JobObject]:
    """All finished jobs, once there are that many."""
    client = cluster.client()
    deadline = time.monotonic() + WAIT_MAX_S
    while True:
        records = list(client.finished_jobs())
        if len(records) >= count or time.monotonic() > deadline:
            return records
        select.select([], [], [], 0.05)


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.parametrize("cluster", ["fifo"], indirect=True)
@pytest.mark.parametrize("seed", SEEDS, ids=[f"seed-{seed}" for seed in SEEDS])
def test_every_job_ends_once_whatever_is_killed(cluster: Cluster, seed: int) -> None:
    random = Random(seed)
    ids = cluster.client().submit_batch([job(cluster.pipe, random) for _ in range(JOBS)])
    moments = sorted(random.sample(range(2 * JOBS - 2), FAULTS))
    seen: Counter[str] = Counter()
    for number, line in enumerate(cluster.told()):
        seen[line] += 1
        if number in moments:
            victims = random.choice((("server",), ("agent",), ("server", "agent")))
            for name in victims:
                cluster.kill(name)
            for name in random.sample(victims, len(victims)):
                cluster.start(name)
        if number == 2 * JOBS - 1:
            break
    records = ended(cluster, JOBS)
    assert sorted(record["id"] for record in records) == sorted(ids), cluster.logs()
    expected = Counter([f"start {job_id} 1" for job_id in ids] + [f"end {job_id}" for job_id in ids])
    assert seen == expected, cluster.logs()
    assert {record["state"] for record in records} <= {"succeeded", "failed"}
    client = cluster.client()
    assert client.health()["running"] == 0
    assert [node["jobs"] for node in client.nodes()] == [[]]
