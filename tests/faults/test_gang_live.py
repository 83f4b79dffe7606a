"""A real data-parallel job over two agents: its ranks find each other, and it ends as one."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colane.api.jobs import JobObject
from tests.faults.cluster import WAIT_MAX_S, Cluster
from tests.needs import needs, two_cores

DDP_JOB = Path(__file__).parents[1] / "agent" / "ddp_job.py"

needs("torch", "the jobs train with PyTorch")
pytestmark = [
    pytest.mark.live,
    two_cores,
]

LOOK_EVERY_S = 0.1
TRAINS_S = 200.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, "fifo", "cpu:2:1GB")
    for name in ("server", "agent", "agent-2"):
        made.start(name)
    deadline = time.monotonic() + WAIT_MAX_S
    while len(made.client().nodes()) < 2:
        assert time.monotonic() < deadline, made.logs()
        select.select([], [], [], LOOK_EVERY_S)
    yield made
    made.close()


def run(cluster: Cluster, tmp_path: Path, gpus: int, fail_rank: int, **more: Any) -> JobObject:
    client = cluster.client()
    env = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(DDP_JOB), str(tmp_path), str(fail_rank)]
    job = client.submit(
        {"command": command, "env": env, "workdir": str(Path.cwd()), "gpus": gpus, "multi_node": True,
         "ranks": "per-gpu", **more}
    )  # fmt: skip
    deadline = time.monotonic() + TRAINS_S
    while any(live["id"] == job for live in client.live_jobs()):
        assert time.monotonic() < deadline, cluster.logs()
        select.select([], [], [], LOOK_EVERY_S)
    return client.job(job)


def test_four_ranks_over_two_nodes_train_one_model(cluster: Cluster, tmp_path: Path) -> None:
    done = run(cluster, tmp_path, 4, -1)
    assert done["state"] == "succeeded", (done["reason"], cluster.logs())
    assert sorted(done["nodes"]) == ["node-1", "node-2"], "the first to register comes first"
    said = [(tmp_path / f"rank-{rank}").read_text().split(" ", 2) for rank in range(4)]
    assert [words[:2] for words in said] == [["4", "0"], ["4", "1"], ["4", "0"], ["4", "1"]]
    assert len({words[2] for words in said}) == 1, "gradients were averaged: all ranks hold the same model"


def test_a_node_for_each_rank_and_a_rank_that_fails(cluster: Cluster, tmp_path: Path) -> None:
    done = run(cluster, tmp_path, 2, 1, anti_collocation=True)
    assert done["state"] == "failed", cluster.logs()
    assert sorted(done["nodes"]) == ["node-1", "node-2"], "the first to register comes first"
    assert done["exit_code"] == 3
    assert cluster.client().live_jobs() == []
