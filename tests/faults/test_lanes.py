"""Three jobs share a lane under the real scheduler while jobs, agent and scheduler are killed.

pytest tests/faults/test_lanes.py
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from colane.api.jobs import JobObject

from .cluster import TOKEN, WAIT_MAX_S, Cluster

JOB = str(Path(__file__).parents[1] / "agent" / "turn_job.py")
FAMILY, STEP_S = "turns", 0.004
PROFILE = {
    "key": {"family": FAMILY, "batch_size": None, "gpus": 1, "gpu_type": "cpu"},
    "persistent_bytes": 50_000_000,
    "ephemeral_bytes": 50_000_000,
}
FAULTS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path, policy="fair", devices="cpu:1:1GB")
    running.start("server")
    running.client()
    running.start("agent")
    yield running
    running.close()


def until(look: Callable[[], Any], cluster: Cluster, what: str) -> Any:
    deadline = time.monotonic() + WAIT_MAX_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what}\n{cluster.logs()}"
        select.select([], [], [], 0.02)
    return seen


def submit(cluster: Cluster) -> int:
    notes = cluster.folder / "notes"
    notes.mkdir(exist_ok=True)
    script = 'exec "$0" "$1" "$2/$COLANE_JOB_ID-$COLANE_ATTEMPT" "$3" 0'
    request = {
        "name": "turns",
        "command": ["sh", "-c", script, sys.executable, JOB, str(notes), str(STEP_S)],
        "workdir": "/",
        "env": {"PATH": os.environ["PATH"]},
        "family": FAMILY,
    }
    return int(cluster.client().submit_batch([request])[0])


def steps(cluster: Cluster, job: int) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (cluster.folder / "notes").glob(f"{job}-*"))


def goes_on(cluster: Cluster, jobs: list[int]) -> None:
    goal = {job: steps(cluster, job) + 5 for job in jobs}
    until(lambda: all(steps(cluster, job) >= goal[job] for job in jobs), cluster, f"jobs {jobs} go on")


def live(cluster: Cluster) -> dict[int, JobObject]:
    return {job["id"]: job for job in cluster.client().live_jobs()}


def show(cluster: Cluster, job: int) -> str:
    """What `colane show` prints."""
    words = [sys.executable, "-m", "colane.cli", "show", str(job)]
    env = {**os.environ, "COLANE_URL": cluster.url, "COLANE_TOKEN": TOKEN, "COLUMNS": "200"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.live
@pytest.mark.faults
def test_a_shared_lane_survives_every_kill(cluster: Cluster) -> None:
    random = Random(7)
    cluster.client().declare_profile(PROFILE)
    jobs = [submit(cluster) for _ in range(3)]
    goes_on(cluster, jobs)
    until(lambda: all(job["progress"] and job["progress"]["turn"] for job in live(cluster).values()), cluster, "turns")
    seen = live(cluster)
    assert {(tuple(job["gpus"]), tuple(job["lanes"])) for job in seen.values()} == {(("node-1/0",), (0,))}
    assert "of the time it wanted the lane, since its co-runners changed" in show(cluster, jobs[0])
    killed = 0
    for victim in random.sample(["job"] * (FAULTS - 4) + ["server", "agent"] * 2, FAULTS):
        if victim == "job":
            job = jobs.pop(random.randrange(len(jobs)))
            os.kill(pid_of(cluster, job), signal.SIGKILL)
            killed += 1
            jobs.append(submit(cluster))
        else:
            cluster.kill(victim)
            cluster.start(victim)
        goes_on(cluster, jobs)
    for job in jobs:
        cluster.client().cancel(job)
    until(lambda: not live(cluster), cluster, "all end")
    records = list(cluster.client().finished_jobs())
    assert len(records) == killed + len(jobs)
    node = cluster.client().node("node-1")
    assert (node["jobs"], node["messages"]) == ([], [])


def pid_of(cluster: Cluster, job: int) -> int:
    """The process that reports the job's steps, as its steps file says."""
    from colane.adaptor.wire import read  # noqa: PLC0415

    (path,) = (cluster.folder / "agent" / "jobs").glob(f"{job}-*/own/steps")
    reported = until(lambda: read(path), cluster, f"job {job} reports")
    return int(reported.pid)
