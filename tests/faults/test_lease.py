"""A node that is cut off or frozen: never two attempts of a job at once, and none lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pytest

from colane.agent.supervisor import shim_files
from colane.client.client import Client

from .cluster import WAIT_MAX_S, Cluster
from .test_kill import ended
from .test_pauses import COUNTING

NODE_TIMEOUT_S = 5.0
COUNTING_GANG = Path(__file__).with_name("counting_gang.py")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path, policy="fifo", devices="cpu:1:1GB", node_timeout_s=NODE_TIMEOUT_S)
    running.start("server")
    running.client()
    running.start("agent")
    yield running
    running.close()


def counting_on_one_of_two(cluster: Cluster) -> tuple[Client, int, Iterator[str]]:
    """A job that counts on the first node, beside a second one that could run it; its lines from the second on."""
    client = cluster.client()
    command = ["sh", "-c", COUNTING, "count", str(cluster.pipe), "1000"]
    (job,) = client.submit_batch([{"name": "count", "command": command, "workdir": "/"}])
    told = cluster.told()
    assert next(told) == "1 1"
    cluster.start("agent-2")
    cluster.until(lambda: [node["leased"] for node in client.nodes()] == [True, True])
    return client, job, told


@pytest.mark.live
@pytest.mark.faults
def test_a_frozen_agent_s_job_has_ended_before_it_is_started_elsewhere(cluster: Cluster) -> None:
    client, job, told = counting_on_one_of_two(cluster)
    cluster.signal("agent", signal.SIGSTOP)
    first = list(takewhile(lambda line: line.startswith("1 "), told))
    assert first, cluster.logs()
    assert all(line.startswith("2 ") for line in islice(told, 6)), "two attempts at once"
    cluster.signal("agent", signal.SIGCONT)
    assert all(line.startswith("2 ") for line in islice(told, 4))
    assert client.job(job)["attempt"] == 2
    client.cancel(job)
    (record,) = ended(cluster, 1)
    assert record["state"] == "cancelled"


@pytest.mark.live
@pytest.mark.faults
def test_where_all_nodes_are_cut_off_longer_than_their_lease_a_job_goes_on_where_it_stood(cluster: Cluster) -> None:
    client, job, told = counting_on_one_of_two(cluster)
    for agent in ("agent", "agent-2"):
        cluster.signal(agent, signal.SIGSTOP)
    cluster.until(lambda: "no node of pool default is heard" in cluster.logs())
    before = [f"1 {number}" for number in range(2, 1000)]
    halted = list(cluster.told(deadline_s=2.0))  # until it is halted
    for agent in ("agent-2", "agent"):
        cluster.signal(agent, signal.SIGCONT)
    went_on = list(islice(told, 4))
    assert [*halted, *went_on] == before[: len(halted) + 4], "made once, each of them"
    assert client.job(job)["attempt"] == 1
    assert not any(node["lost"] for node in client.nodes())
    client.cancel(job)
    (record,) = ended(cluster, 1)
    assert (record["state"], record["attempt"]) == ("cancelled", 1)


@pytest.mark.live
@pytest.mark.faults
def test_a_job_of_a_node_that_was_lost_goes_on_where_it_stood_if_no_other_had_room(cluster: Cluster) -> None:
    client, job, told = counting_on_one_of_two(cluster)
    (other,) = client.submit_batch([{"name": "other", "command": ["sleep", "1000"], "workdir": "/"}])
    cluster.until(lambda: client.job(other)["state"] not in {"queued", "assigned"})
    cluster.signal("agent", signal.SIGSTOP)
    cluster.until(lambda: client.job(job)["why"] == "node-lost")
    halted = list(cluster.told(deadline_s=2.0))
    cluster.signal("agent", signal.SIGCONT)
    went_on = list(islice(told, 4))
    assert [*halted, *went_on] == [f"1 {number}" for number in range(2, len(halted) + 6)], "made once, each of them"
    assert client.job(job)["attempt"] == 1
    for each in (job, other):
        client.cancel(each)
    assert [record["attempt"] for record in ended(cluster, 2)] == [1, 1]


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "server": {"kind": "inference", "family": "served"},
    "element of an array": {"array": "1-2%1"},
    "gang": {"gpus": 2, "multi_node": True, "ranks": "per-gpu"},
}


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.parametrize("back", ["its agent goes on", "its agent is started anew"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_has_lost_its_node_goes_on_where_no_other_had_room(cluster: Cluster, kind: str, back: str) -> None:
    client, is_gang = cluster.client(), kind == "gang"
    cluster.start("agent-2")
    cluster.until(lambda: [node["leased"] for node in client.nodes()] == [True, True])
    plain = ["sh", "-c", COUNTING, "count", str(cluster.pipe), "1000"]
    gang = [sys.executable, str(COUNTING_GANG), str(cluster.pipe), "600"]
    env = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = gang if is_gang else plain
    wanted = {"name": "it", "command": command, "env": env, "workdir": "/", **KINDS[kind]}
    (job,) = client.submit_batch([wanted])
    other = {"name": "other", "command": ["sleep", "1000"], "workdir": "/"}
    others = [] if is_gang else client.submit_batch([other])
    told = cluster.told()
    seen = [next(told)]
    cluster.until(lambda: all(client.job(other)["state"] not in {"queued", "assigned"} for other in others))
    live = next(one["id"] for one in client.live_jobs() if one["nodes"] and one["id"] not in others)
    agent = "agent" if client.job(live)["nodes"] == ["node-1"] else "agent-2"
    cluster.signal(agent, signal.SIGSTOP)
    cluster.until(lambda: client.job(live)["why"] == "node-lost" and client.job(live)["state"] == "queued")
    seen += cluster.told(deadline_s=2.0)
    if back == "its agent goes on":
        cluster.signal(agent, signal.SIGCONT)
    else:
        cluster.kill(agent)
        cluster.start(agent)
    seen += islice(told, 4)
    assert seen == [f"1 {number}" for number in range(1, len(seen) + 1)], "made once, each of them"
    assert client.job(live)["attempt"] == 1
    for each in (job, *others):
        client.cancel(each)
    cluster.until(lambda: not client.live_jobs())


@pytest.mark.live
@pytest.mark.faults
def test_a_gang_whose_collectives_wait_for_less_than_a_cut_lasts_begins_anew_and_has_not_failed(
    cluster: Cluster,
) -> None:
    client = cluster.client()
    cluster.start("agent-2")
    cluster.until(lambda: [node["leased"] for node in client.nodes()] == [True, True])
    env = {"PATH": os.environ["PATH"], "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    gang = [sys.executable, str(COUNTING_GANG), str(cluster.pipe), str(2 * NODE_TIMEOUT_S)]
    (job,) = client.submit_batch([{"name": "it", "command": gang, "env": env, "workdir": "/", **KINDS["gang"]}])
    told = cluster.told()
    assert next(told) == "1 1"
    cluster.signal("agent-2", signal.SIGSTOP)
    cluster.until(lambda: client.job(job)["state"] == "queued")
    for _ in cluster.told(deadline_s=2 * NODE_TIMEOUT_S):
        pass
    cluster.signal("agent-2", signal.SIGCONT)
    # A busy machine may keep an agent for longer than the lease before the gang has said its first word again.
    assert next(line for line in told if not line.startswith("1 ")).endswith(" 1")
    shown = client.job(job)
    assert shown["attempt"] > 1
    assert shown["failures"] == 0
    assert "not-gone-on" in {line["why"] for line in shown["story"]}
    client.cancel(job)
    cluster.until(lambda: not client.live_jobs())


@pytest.mark.live
@pytest.mark.faults
def test_where_no_other_node_could_run_it_a_job_waits_for_its_own(cluster: Cluster) -> None:
    lines = int(3 * NODE_TIMEOUT_S / 0.5)
    command = ["sh", "-c", COUNTING, "count", str(cluster.pipe), str(lines)]
    cluster.client().submit_batch([{"name": "count", "command": command, "workdir": "/"}])
    told = cluster.told()
    seen = [next(told)]
    cluster.until(lambda: [node["leased"] for node in cluster.client().nodes()] == [False])
    cluster.signal("agent", signal.SIGSTOP)
    seen += islice(told, lines - 1)
    cluster.signal("agent", signal.SIGCONT)
    (record,) = ended(cluster, 1)
    assert (record["state"], record["attempt"]) == ("succeeded", 1), cluster.logs()
    assert seen == [f"1 {number}" for number in range(1, lines + 1)]


@pytest.mark.live
@pytest.mark.faults
def test_a_scheduler_that_is_stopped_by_order_lets_jobs_run_on(cluster: Cluster) -> None:
    client, job, told = counting_on_one_of_two(cluster)
    cluster.signal("server", signal.SIGTERM)
    assert cluster.processes.pop("server").wait(WAIT_MAX_S) == 0
    lease = shim_files.read_lease(str(cluster.folder / "agent" / shim_files.LEASE))
    assert lease is not None
    assert shim_files.halt_at_s(lease) - shim_files.since_boot_s() > NODE_TIMEOUT_S, cluster.logs()
    cluster.start("server")
    client = cluster.client()
    assert all(line.startswith("1 ") for line in islice(told, 3))
    client.cancel(job)
    (record,) = ended(cluster, 1)
    assert (record["state"], record["attempt"]) == ("cancelled", 1)
