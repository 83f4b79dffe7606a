"""Two jobs that are slower side by side than was predicted are separated while they run, and lose no step."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster
from .test_lanes import JOB, live, show, until

FAMILY, BELIEVED_S, STEP_S = "slow", 0.02, 0.03
"""A step is said to take 20 ms alone and takes 30: with co-runners, a slowdown of 1.5 that was not foreseen."""
PROFILE = {
    "key": {"family": FAMILY, "batch_size": None, "gpus": 1, "gpu_type": "cpu"},
    "step_s": BELIEVED_S,
    "occupancy": 1e6,
    "persistent_bytes": 50_000_000,
    "ephemeral_bytes": 50_000_000,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path, "colocate", devices="cpu:1:1GB", protection_factor=0.0, guard_after_s=3.0)
    running.start("server")
    running.client()
    running.start("agent")
    yield running
    running.close()


def submit(cluster: Cluster, name: str) -> int:
    request = {
        "name": name,
        "command": [sys.executable, JOB, str(cluster.folder / name), str(STEP_S), "0"],
        "workdir": "/",
        "env": {"PATH": os.environ["PATH"]},
        "family": FAMILY,
    }
    return int(cluster.client().submit_batch([request])[0])


@pytest.mark.live
@pytest.mark.faults
def test_a_slow_pair_takes_turns_and_loses_no_step(cluster: Cluster) -> None:
    cluster.client().declare_profile(PROFILE)
    jobs = {submit(cluster, name): name for name in ("one", "two")}
    lanes: list[Any] = []

    def share_a_lane() -> bool:
        lanes[:] = [job["lanes"] for job in live(cluster).values()]
        return len(lanes) == 2 and lanes[0] == lanes[1]

    until(lambda: len({tuple(job["lanes"]) for job in live(cluster).values()}) == 2, cluster, "side by side")
    until(share_a_lane, cluster, "they take turns")
    newest = max(jobs)
    said = show(cluster, newest)
    assert "times slower than alone" in said
    assert "predicted" in said
    for job, name in jobs.items():
        numbers = [int(line.split()[0]) for line in (cluster.folder / name).read_bytes().split(b"\n")[:-1]]
        assert numbers == list(range(1, len(numbers) + 1)), "a step is done anew"
        assert live(cluster)[job]["attempt"] == 1
        cluster.client().cancel(job)
    until(lambda: not live(cluster), cluster, "all end")
