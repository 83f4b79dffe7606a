"""`sbatch -p a,b`: a real scheduler and two agents in two pools; a job waits in both and runs in the first that can."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Gate
from tests.faults.cluster import TOKEN, Cluster
from tests.integrations.conftest import Shell, shell_in

pytestmark = pytest.mark.live
SCRIPT = "#!/bin/bash\n#SBATCH -p a,b --gres=gpu:1 -o out\necho $SLURM_JOB_PARTITION on $SLURM_JOB_NODELIST\n"
NODES = {"a": "node-1", "b": "node-2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), "fifo", "cpu:1:1GB")
    made.start("server")
    made.start("agent", pool="a")
    made.start("agent-2", pool="b")
    made.until(lambda: len(made.client().nodes()) == 2)
    yield made
    made.close()


@pytest.fixture
def on_pools(cluster: Cluster, verbs: Path, tmp_path: Path) -> Shell:
    """Runs words in this test's directory, as a shell with the verbs first in its path does."""
    return shell_in(tmp_path, verbs, {"COLANE_URL": cluster.url, "COLANE_TOKEN": TOKEN})


def told(shell: Shell, job: str) -> dict[str, str]:
    """In which partition each of Slurm's words says that a job is."""
    shown = shell("scontrol", "show", "job", job).out
    return {
        "squeue": shell("squeue", "-h", "-j", job, "-t", "all", "-o", "%P").out.strip(),
        "squeue -O": shell("squeue", "-h", "-j", job, "-t", "all", "-O", "partition:30").out.strip(),
        "scontrol": shown.partition(" Partition=")[2].split()[0],
        "sacct": shell("sacct", "-XnP", "-j", job, "-o", "Partition").out.strip(),
    }


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("way", ["-p", "--partition", "in the script"])
def test_a_job_waits_in_both_and_runs_in_the_first_that_can(
    cluster: Cluster, on_pools: Shell, tmp_path: Path, first: str, way: str
) -> None:
    gates = {pool: Gate(tmp_path / f"gate-{pool}") for pool in NODES}
    held = {}
    for pool, gate in gates.items():
        full = on_pools(
            "sbatch", "--parsable", "-p", pool, "--gres=gpu:1", "-o", f"of-{pool}", "--wrap", shlex.join(gate.job)
        )
        assert full.code == 0, full
        held[pool] = full.out.strip()
    script = SCRIPT if way == "in the script" else SCRIPT.replace("-p a,b ", "")
    words = [] if way == "in the script" else [way, "a,b"]
    (tmp_path / "job.sh").write_text(script)
    try:
        said = on_pools("sbatch", "--parsable", *words, "job.sh")
        assert said.code == 0, said
        job = said.out.strip()
        assert set(told(on_pools, job).values()) == {"a,b"}, told(on_pools, job)
        for pool in NODES:
            assert job in on_pools("squeue", "-h", "-p", pool, "-t", "PD", "-o", "%i").out.split()
        gates.pop(first).open()
        cluster.until(lambda: cluster.client().job(int(job))["state"] == "succeeded")
        assert (tmp_path / "out").read_text() == f"{first} on {NODES[first]}\n"
        assert set(told(on_pools, job).values()) == {first}, told(on_pools, job)
        other = next(pool for pool in NODES if pool != first)
        assert on_pools("squeue", "-h", "-j", held[other], "-o", "%T").out.strip() == "RUNNING", "it was not waited for"
    finally:
        for gate in gates.values():
            gate.open()
        ids = {int(one) for one in held.values()}
        cluster.until(lambda: not ids & {one["id"] for one in cluster.client().live_jobs()})
