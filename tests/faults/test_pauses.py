"""Processes that are frozen for a while and go on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from .cluster import Cluster
from .test_kill import ended

NODE_TIMEOUT_S = 4.0
TICK_S = 0.5
COUNTING = 'for i in $(seq 1 "$2"); do echo "$COLANE_ATTEMPT $i" > "$1"; sleep 0.5; done'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path, policy="fifo", devices="cpu:1:1GB", node_timeout_s=NODE_TIMEOUT_S)
    running.start("server")
    running.client()
    running.start("agent")
    yield running
    running.close()


@pytest.mark.live
@pytest.mark.faults
def test_a_frozen_scheduler_restarts_no_job(cluster: Cluster) -> None:
    steps = int(2 * NODE_TIMEOUT_S / TICK_S)
    command = ["sh", "-c", COUNTING, "count", str(cluster.pipe), str(2 * steps)]
    cluster.client().submit_batch([{"name": "count", "command": command, "workdir": "/"}])
    told = cluster.told()
    seen = [next(told)]
    cluster.signal("server", signal.SIGSTOP)
    seen += islice(told, steps)  # twice as long as a node may be silent
    cluster.signal("server", signal.SIGCONT)
    seen += islice(told, steps - 1)
    assert seen == [f"1 {step}" for step in range(1, 2 * steps + 1)], cluster.logs()
    (record,) = ended(cluster, 1)
    assert (record["state"], record["attempt"]) == ("succeeded", 1), cluster.logs()
    assert "was not listening for" in cluster.logs()


@pytest.mark.live
@pytest.mark.faults
def test_in_a_pool_of_two_nodes_a_frozen_scheduler_halts_jobs_that_go_on_with_it_where_they_stood(
    cluster: Cluster,
) -> None:
    client = cluster.client()
    cluster.start("agent-2")
    cluster.until(lambda: [node["leased"] for node in client.nodes()] == [True, True])
    command = ["sh", "-c", COUNTING, "count", str(cluster.pipe), "1000"]
    client.submit_batch([{"name": "count", "command": command, "workdir": "/"}])
    told = cluster.told(deadline_s=2 * NODE_TIMEOUT_S)
    first = next(told)
    cluster.signal("server", signal.SIGSTOP)
    alone = [first, *told]  # until it says nothing more
    assert alone == [f"1 {step}" for step in range(1, len(alone) + 1)]
    assert len(alone) < 2 * NODE_TIMEOUT_S / TICK_S, "it went on for longer than its lease"
    cluster.signal("server", signal.SIGCONT)
    onwards = range(len(alone) + 1, len(alone) + 5)
    assert list(islice(cluster.told(), 4)) == [f"1 {step}" for step in onwards], cluster.logs()
