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


def told(cluster: Cluster, random: Random, lines: int, faults: int) -> Counter[str]:
    """What jobs say until they have said so many lines, while schedulers and agents are killed in between."""
    moments, seen = sorted(random.sample(range(lines - 2), faults)), Counter[str]()
    for number, line in enumerate(cluster.told()):
        seen[line] += 1
        if number in moments:
            victims = random.choice((("server",), ("agent",), ("server", "agent")))
            for name in victims:
                cluster.kill(name)
            for name in random.sample(victims, len(victims)):
                cluster.start(name)
        if number == lines - 1:
            break
    return seen


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.parametrize("cluster", ["fifo"], indirect=True)
def test_every_element_of_an_array_ends_once_whatever_is_killed(cluster: Cluster) -> None:
    random, elements = Random(7), 16
    whole = {**job(cluster.pipe, random), "array": f"0-{elements - 1}%3", "gpus": 0}
    whole["command"][-2:] = ["0.1", "0"]
    array = cluster.client().submit(whole)
    seen = told(cluster, random, 2 * elements, 5)
    records = ended(cluster, elements + 1)
    ids = [array + 1 + ordinal for ordinal in range(elements)]
    assert sorted(record["id"] for record in records) == [array, *ids], cluster.logs()
    assert seen == Counter([f"start {one} 1" for one in ids] + [f"end {one}" for one in ids]), cluster.logs()
    (shown,) = [record["elements"] for record in records if record["id"] == array]
    assert shown is not None
    assert (shown["succeeded"], shown["failed"], shown["cancelled"]) == (elements, 0, 0)


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.parametrize("cluster", ["fifo"], indirect=True)
@pytest.mark.parametrize("seed", SEEDS, ids=[f"seed-{seed}" for seed in SEEDS])
def test_every_job_ends_once_whatever_is_killed(cluster: Cluster, seed: int) -> None:
    random = Random(seed)
    ids = cluster.client().submit_batch([job(cluster.pipe, random) for _ in range(JOBS)])
    seen = told(cluster, random, 2 * JOBS, FAULTS)
    records = ended(cluster, JOBS)
    assert sorted(record["id"] for record in records) == sorted(ids), cluster.logs()
    expected = Counter([f"start {job_id} 1" for job_id in ids] + [f"end {job_id}" for job_id in ids])
    assert seen == expected, cluster.logs()
    assert {record["state"] for record in records} <= {"succeeded", "failed"}
    client = cluster.client()
    assert client.health()["running"] == 0
    assert [node["jobs"] for node in client.nodes()] == [[]]
