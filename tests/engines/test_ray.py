"""`colane up --engine ray` on a real Ray of three nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Colane, until
from tests.engines.raycluster import RayCluster, ray_cluster
from tests.engines.ups import RUNS, Up
from tests.needs import needs

needs("ray", "Ray is not installed")

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def head() -> Iterator[RayCluster]:
    """One for all tests: it takes ten seconds to start."""
    with ray_cluster() as made:
        yield made


@pytest.fixture
def cluster(head: RayCluster) -> Iterator[RayCluster]:
    """The same without nodes."""
    yield head
    for name in [*head.nodes]:
        if name != "head":
            head.kill(name)


def up_on(cluster: RayCluster, state: Path, *options: str) -> Up:
    words = ("--engine", "ray", "--address", cluster.address)
    return Up(state, *words, *options, env=cluster.env, is_warm=False)


HOLDER = """
import sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
node = next(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeName"] == sys.argv[2])
@ray.remote(num_cpus=0, num_gpus=1, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
class Holder:
    def holds(self):
        return True
holder = Holder.remote()
ray.get(holder.holds.remote())
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_others(cluster: RayCluster, name: str) -> Iterator[None]:
    """Let another program of Ray's have a GPU of a node."""
    words = [sys.executable, "-c", HOLDER, cluster.address, name]
    env = {**os.environ, **cluster.env}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield


def simulated_alike(cluster: RayCluster, colane: Colane) -> None:
    """Nodes of Ray's simulate as this machine does."""
    words = ("simulate", "--trace", "poisson:jobs=20,gap=30", "--seeds", "2", "-p", "fifo", "--json")
    ours = colane(*words)
    theirs = colane(*words, "--engine", "ray", "--address", cluster.address)
    assert ours.code == theirs.code == 0, theirs
    assert without_wall_times(json.loads(theirs.out)) == without_wall_times(json.loads(ours.out))


STUDY = """
cluster = "dgx1"
trace = "heavy-load:jobs=10,load=1.5"
policies = ["fifo"]
seeds = 2
files = ["jobs", "decisions"]
"""


def studied_alike(cluster: RayCluster, colane: Colane, folder: Path) -> None:
    """Of a study, too."""
    file = folder / "study.toml"
    file.write_text(STUDY)
    places = {"ours": ("--processes", "1"), "theirs": ("--engine", "ray", "--address", cluster.address)}
    for name, there in places.items():
        ended = colane("study", str(file), "--out", str(folder / name), *there)
        assert ended.code == 0, ended
    kept = [sorted(path for path in (folder / name).rglob("*") if path.is_file()) for name in places]
    named = [[str(path.relative_to(folder / name)) for path in paths] for name, paths in zip(places, kept, strict=True)]
    assert named[0] == named[1]
    assert len([name for name in named[0] if name.endswith((".npz", ".gz"))]) == 4
    for ours, theirs in zip(*kept, strict=True):
        assert ours.read_bytes() == theirs.read_bytes(), ours


def test_agents_are_there_and_nothing_of_ray_reaches_a_job(cluster: RayCluster, tmp_path: Path, colane: Colane) -> None:
    cluster.add("n1")
    cluster.add("n2")
    until(lambda: cluster.alive() >= {"n1", "n2"}, "both are Ray's")
    with held_by_others(cluster, "n2"):
        up = up_on(cluster, tmp_path / "state", "--gpus-per-node", "4", "--keep-jobs")
        simulated_alike(cluster, colane)
        studied_alike(cluster, colane, tmp_path)
        lacks = "n2: Ray has not started its agent yet: 4 of its 4 GPUs must be free"
        until(lambda: lacks in up.said(), "what it waits for is said")
        assert list(up.nodes()) == ["n1"]
    try:
        until(lambda: sorted(up.nodes()) == ["n1", "n2"], "both nodes have agents")
        with up.client as scheduler:
            out = tmp_path / "environment"
            told = {"command": ["sh", "-c", f"env >{out}.new; mv {out}.new {out}"], "env": {"PATH": os.environ["PATH"]}}
            job = scheduler.submit(told)
            until(lambda: scheduler.job(job)["state"] == "succeeded", "the job ends")
        of_job = dict(line.split("=", 1) for line in out.read_text().splitlines() if "=" in line)
        assert [name for name in of_job if name.startswith(("RAY_", "SPT_")) or name == "PYTHONBREAKPOINT"] == []
        assert of_job.get("CUDA_VISIBLE_DEVICES", "") == ""
        assert "OMP_NUM_THREADS" not in of_job or int(of_job["OMP_NUM_THREADS"]) == len(os.sched_getaffinity(0))
        with up.client as scheduler:
            job = scheduler.submit({"command": ["sleep", "1000"], "env": {"PATH": os.environ["PATH"]}})
            until(lambda: scheduler.job(job)["state"] in RUNS, "a job runs")
        until(lambda: "n1: its agent is there" in up.said() and "n2: its agent is there" in up.said(), "both are said")
        up.end()
        up = up_on(cluster, tmp_path / "state", "--gpus-per-node", "4")
        until(lambda: up.said().count("n1: its agent is there") == 2, "the one of n1 is taken over")
        until(lambda: up.said().count("n2: its agent is there") == 2, "that of n2, too")
        with up.client as scheduler:
            shown = scheduler.job(job)
            assert (shown["state"] in RUNS, shown["attempt"]) == (True, 1)
        cluster.kill_raylet("n2")
        until(lambda: cluster.nodes["n2"].poll() is not None, "a node without its raylet ends, for its unit to restart")
        until(lambda: "n2: Ray has lost the node" in up.said(), "its loss is said")
        cluster.add("n2")
        until(lambda: up.said().count("n2: its agent is there") == 3, "it is back, without our doing")
    finally:
        said = up.end()
    assert "may go on" not in said
    assert cluster.packets_sent() == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"a word", ("192.0.2.1", 9))
    until(lambda: cluster.packets_sent() > 0, "a word is counted")


def without_wall_times(found: Any) -> Any:
    """What is the same each time."""
    if isinstance(found, list):
        return [without_wall_times(each) for each in found]
    if isinstance(found, dict):
        return {name: without_wall_times(each) for name, each in found.items() if name not in ("decision_s", "wall_s")}
    return found


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--engine", "ray"], 2, "--engine ray: is for several seeds (--seeds N)"),
        (["--engine", "ray", "--seeds", "2"], 2, "--address: must be given with --engine ray"),
        (["--address", "127.0.0.1:1"], 2, "--address: is for --engine ray"),
        (["--engine", "ray", "--seeds", "2", "--address", "x"], 2, "--address: must be HOST:PORT"),
        (["--engine", "ray", "--seeds", "2", "--address", "127.0.0.1:1"], 1, "no Ray answers at 127.0.0.1:1"),
    ],
)
def test_runs_that_cannot_go_elsewhere_are_one_line(colane: Colane, options: list[str], code: int, said: str) -> None:
    found = colane("simulate", *options)
    assert found.code == code, found
    assert said in found.err
    assert len(found.err.splitlines()) == 1


def test_a_study_that_cannot_go_elsewhere_is_one_line(colane: Colane, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    for options, code, said in (
        (["--engine", "ray"], 2, "--address: must be given with --engine ray"),
        (["--engine", "ray", "--address", "127.0.0.1:1", "--processes", "2"], 2, "--processes: are this machine's"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], 1, "no Ray answers at 127.0.0.1:1"),
    ):
        found = colane("study", str(file), "--out", str(tmp_path / "out"), *options)
        assert (found.code, len(found.err.splitlines())) == (code, 1), found
        assert said in found.err


METADATA = """
import json, os, sys
from ray._raylet import GcsClient
gcs = GcsClient(address=sys.argv[1])
told = json.loads(gcs.internal_kv_get(b"CLUSTER_METADATA", b"cluster"))
print(told["ray_version"])
told["ray_version"] = sys.argv[2]
gcs.internal_kv_put(b"CLUSTER_METADATA", json.dumps(told).encode(), True, b"cluster")
os._exit(sys.stdout.flush() or 0)
"""


def set_version(cluster: RayCluster, version: str) -> str:
    """Let the cluster say that it is another version's, and return what it said."""
    words = [sys.executable, "-c", METADATA, cluster.address, version]
    env = {**os.environ, **cluster.env}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_faults_are_one_line_and_nodes_without_names_come_back(
    cluster: RayCluster, tmp_path: Path, colane: Colane
) -> None:
    cluster.add("n1", is_named=False)
    up = up_on(cluster, tmp_path / "state")
    words = ("--port", "0", "--engine", "ray", "--devices", "cpu:1:1GB", "--address", cluster.address)
    try:
        until(lambda: sorted(up.nodes()) == ["head", "n1"], "both nodes have agents")
        second = colane("up", "--state", str(tmp_path / "second"), *words)
        assert second.code == 1
        with up.client as scheduler:
            assert f"are those of the scheduler at {scheduler.url} (colane up on" in second.err.splitlines()[-1]
        assert str(up.state) in second.err.splitlines()[-1]
        own = set_version(cluster, "2.9.3")
        other = colane("up", "--state", str(tmp_path / "other"), *words)
        assert other.code == 1
        assert "is 2.9.3 on Python" in other.err.splitlines()[-1]
        assert f"here is Ray {own} on Python" in other.err.splitlines()[-1]
        set_version(cluster, own)

        cluster.kill("n1")
        until(lambda: "n1: Ray has lost the node" in up.said(), "its loss is said")
        cluster.add("n1", is_named=False)
        until(lambda: up.said().count("n1: its agent is there") == 2, "it has a new agent")

        cluster.kill("head")
        until(lambda: "agents and jobs that run go on" in up.said(), "that Ray is away is said")
        until(lambda: cluster.nodes["n1"].poll() is not None, "a node without a head ends")
        cluster.head()
        cluster.add("n1", is_named=False)
        until(lambda: "answers again" in up.said(), "that it is back is said")
        until(lambda: up.said().count("n1: its agent is there") == 3, "its agent is made anew")
    finally:
        said = up.end()
    assert "may go on" not in said
    assert "Traceback" not in said


def processes_of_here(words: str) -> set[int]:
    """Processes in this network with these words in their command lines."""
    network, found = Path("/proc/thread-self/ns/net").readlink(), set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line and (entry / "ns" / "net").readlink() == network:
                found.add(int(entry.name))
    return found


def test_what_is_killed_is_started_again_and_jobs_go_on(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.add("n1", gpus=2)
    until(lambda: cluster.alive() >= {"n1"}, "it is Ray's")
    up = up_on(cluster, tmp_path / "state")
    try:
        until(lambda: list(up.nodes()) == ["n1"], "it has an agent")
        with up.client as scheduler:
            job = scheduler.submit({"command": ["sleep", "1000"], "env": {"PATH": os.environ["PATH"]}})
            until(lambda: scheduler.job(job)["state"] in RUNS, "a job runs")
            for words in ("colane.cli agent", "ray::AgentKeeper", "colane.engines.ray_driver"):
                until(lambda: len(processes_of_here(words)) == 1, f"one {words}")  # noqa: B023 - looked at here
                killed = processes_of_here(words)
                os.kill(min(killed), signal.SIGKILL)
                until(lambda: processes_of_here(words) - killed, f"another {words}")  # noqa: B023 - looked at here
                seen_s = up.nodes()["n1"]["last_seen_s"]
                until(lambda: up.nodes()["n1"]["last_seen_s"] > seen_s, "its node reports")  # noqa: B023
            until(lambda: "answers again" in up.said(), "that the driver is back is said")
            assert scheduler.job(job)["attempt"] == 1
        cluster.kill("head")
    finally:
        said = up.end()
        if "head" not in cluster.nodes:
            cluster.head()
    assert "does not answer any more: agents there may go on" in said
    assert "Traceback" not in said
