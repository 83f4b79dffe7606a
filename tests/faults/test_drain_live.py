"""Draining real nodes: a job saves, leaves and goes on elsewhere, each step once, whatever is restarted meanwhile."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import WAIT_MAX_S, Cluster

pytestmark = pytest.mark.live

JOB = """
import os, sys, time
import colane.adaptor as colane
notes, enough, saved = sys.argv[1:4]

def write(steps):
    with open(saved + ".new", "w") as file:
        file.write(str(steps))
    os.replace(saved + ".new", saved)

steps = colane.attach()
steps.restore(lambda: int(open(saved).read()) if os.path.exists(saved) else None)
with open(notes, "a", buffering=1) as lines:
    while not os.path.exists(enough):
        time.sleep(0.02)
        lines.write(f"{steps.steps_done + 1} {os.environ['COLANE_ATTEMPT']}\\n")
        steps.step()
        steps.save(write)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    notice = f"cat {tmp_path}/notice-of-$COLANE_TEST_NODE"
    made = Cluster(tmp_path, "fifo", "cpu:1:1GB", protection_factor=0.0, drain_on_stop_s=100.0, notice_command=notice)
    made.start("server")
    made.client()
    yield made
    made.close()


def start(cluster: Cluster, name: str, node: str) -> None:
    """Start an agent whose notice command looks for its own node's notice."""
    os.environ["COLANE_TEST_NODE"] = node
    try:
        cluster.start(name)
    finally:
        del os.environ["COLANE_TEST_NODE"]
    until(cluster, lambda: any(each["name"] == node for each in cluster.client().nodes()), f"{node} is there")


def until(cluster: Cluster, look: Callable[[], Any], what: str) -> Any:
    deadline_s = time.monotonic() + WAIT_MAX_S
    while not (seen := look()):
        assert time.monotonic() < deadline_s, f"waited in vain: {what}\n{cluster.logs()}"
        select.select([], [], [], 0.02)
    return seen


def test_a_job_goes_from_node_to_node_as_they_are_drained_noticed_and_shut_down(
    cluster: Cluster, tmp_path: Path
) -> None:
    start(cluster, "agent", "node-1")
    notes, enough, saved = (tmp_path / name for name in ("notes", "enough", "saved"))
    command = [sys.executable, "-c", JOB, str(notes), str(enough), str(saved)]
    job = cluster.client().submit({"command": command, "workdir": "/", "env": dict(os.environ)})

    def runs_on(node: str, attempt: int) -> Any:
        """Its latest step is of that attempt, and its scheduler knows where it is."""
        found = cluster.client().job(job)
        lines = notes.read_text().split("\n")[:-1] if notes.exists() else []
        steps = bool(lines) and lines[-1].endswith(f" {attempt}")
        return steps and found["node"] == node and found["constraints"].get("checkpoint")

    def is_at(node: str, state: str) -> bool:
        return str(cluster.client().node(node)["state"]) == state

    until(cluster, lambda: runs_on("node-1", 1), "it trains on node-1")
    start(cluster, "agent-2", "node-2")
    cluster.client().drain("node-1", reason="new fan")
    cluster.kill("server")
    cluster.start("server")
    until(cluster, lambda: runs_on("node-2", 2), "it goes on at node-2, the scheduler started anew")
    until(cluster, lambda: is_at("node-1", "drained"), "node-1 is empty")
    assert "new fan" in str(cluster.client().job(job)["story"])

    cluster.client().undrain("node-1")
    (tmp_path / "notice-of-node-2").write_text("100 taken back by the cloud\n")
    until(cluster, lambda: runs_on("node-1", 3), "it leaves a spot node that has notice")
    assert "taken back by the cloud" in str(cluster.client().node("node-2")["notice"])
    (tmp_path / "notice-of-node-2").unlink()
    until(cluster, lambda: is_at("node-2", "up"), "the notice is taken back")

    agent = cluster.processes["agent"]
    cluster.signal("agent", signal.SIGTERM)
    until(cluster, lambda: runs_on("node-2", 4), "it leaves a machine that is shut down")
    assert agent.wait(WAIT_MAX_S) == 0
    del cluster.processes["agent"]
    assert is_at("node-1", "drained")
    cluster.start("agent")
    until(cluster, lambda: is_at("node-1", "up"), "node-1 is back")

    enough.touch()
    until(cluster, lambda: cluster.client().job(job)["state"] == "succeeded", "it ends")
    made = [int(line.split()[0]) for line in notes.read_text().split("\n")[:-1]]
    assert made == list(range(1, len(made) + 1)), "each step once"
