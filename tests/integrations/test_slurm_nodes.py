"""Slurm scripts over several machines: a real scheduler, and two agents as its machines."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from getpass import getuser
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace

import pytest

from colane.integrations.slurm import contact, scontrol, steps
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.options import parse
from colane.integrations.slurm.request import build
from colane.integrations.slurm.steps import TaskShare, shared_out, tasks_per_node
from tests.engines.sshd import free_port
from tests.faults.cluster import TOKEN, Cluster
from tests.integrations.conftest import Shell, shell_in
from tests.needs import needs, two_cores

ENDED = {"succeeded", "failed", "cancelled"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), "fifo", "cpu:2:1GB")
    for name in ("server", "agent", "agent-2"):
        made.start(name)
    made.until(lambda: len(made.client().nodes()) == 2)
    yield made
    made.close()


@pytest.fixture
def on_two(cluster: Cluster, verbs: Path, tmp_path: Path) -> Shell:
    """Runs words in this test's directory, as a shell with the verbs first in its path does."""
    return shell_in(tmp_path, verbs, {"COLANE_URL": cluster.url, "COLANE_TOKEN": TOKEN})


SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:1 -o out --mem=1G
echo "$SLURM_JOB_NUM_NODES $SLURM_NNODES $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_NODEID $SLURM_MEM_PER_NODE"
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
echo $hosts
second=$(echo "$hosts" | tail -n 1)
srun --nodes=1 --ntasks=1 -w "$second" sh -c 'echo "one on $SLURMD_NODENAME, $SLURM_NODEID of $SLURM_NNODES"'
export MINE="of the script"
srun -o task-%t sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_NTASKS $COLANE_NODE, $MINE'
srun --output=both sh -c 'echo "$SLURM_JOB_NODELIST"'
srun --label sh -c 'exit $((3 * SLURM_PROCID))' || echo "code $?"
srun -n 4 true || echo "code $?"
srun -n 4 -O -l sh -c 'echo $SLURM_LOCALID on $SLURM_NODEID' | sort
srun --nodes=3 true
srun false & wait $! || echo "beside it $?"
exit 5
"""


@pytest.mark.live
@two_cores
def test_a_script_runs_on_the_first_of_its_machines_and_srun_on_all(
    on_two: Shell, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "job.sh").write_text(SCRIPT)
    said = on_two("sbatch", "--wait", "--parsable", "job.sh")
    out = (tmp_path / "out").read_text() if (tmp_path / "out").exists() else cluster.logs()
    assert said.code == 5, (said, out)
    nodes = cluster.client().job(int(said.out))["nodes"]
    assert "NumNodes=2 " in on_two("scontrol", "show", "job", said.out.strip()).out
    told = on_two("sacct", "-X", "-n", "-P", "-j", said.out.strip(), "-o", "NNodes,AllocNodes").out
    assert told == "2|2\n"
    assert sorted(nodes) == ["node-1", "node-2"]
    assert out.splitlines() == [
        "2 2 2 1(x2) 0 1024",
        f"scontrol: {', '.join(nodes)}: no host name here, and no agent's own address stands for it",
        " ".join(nodes), f"one on {nodes[1]}, 0 of 1", "code 3",
        ("srun: error: 4 tasks are more than this job has room for (2 tasks, 2 cores, 2 GPUs): sbatch --ntasks, or "
        "--overcommit"), "code 1",
        "0: 0 on 0", "1: 1 on 0", "2: 0 on 1", "3: 1 on 1",
        "srun: error: --nodes must be 1 to 2, the machines of this job, got '3'", "beside it 1",
    ]  # fmt: skip
    tasks = [(tmp_path / f"task-{rank}").read_text() for rank in (0, 1)]
    assert tasks == [f"{rank} {rank} 0 2 {nodes[rank]}, of the script\n" for rank in (0, 1)]
    assert (tmp_path / "both").read_text() == 2 * f"{','.join(nodes)}\n"


@pytest.mark.parametrize(
    ("addresses", "printed", "said"),
    [
        (("127.0.0.2", "127.0.0.3"), ["127.0.0.2", "127.0.0.3"], ""),
        (("127.0.0.2", "127.0.0.2"), ["n1.invalid", "n2.invalid"], "scontrol: n1.invalid, n2.invalid: no host name"),
        (("127.0.0.2", "[::1]"), ["127.0.0.2", "::1"], ""),
        (("127.0.0.2", "n2.invalid"), ["127.0.0.2", "n2.invalid"], "scontrol: n2.invalid: no host name"),
    ],
)
def test_host_names_of_machines_resolve_or_it_is_said_that_they_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], addresses: tuple[str, ...],
    printed: list[str], said: str,
) -> None:  # fmt: skip
    nodes = [{"name": f"n{at}.invalid", "address": f"http://{host}:1"} for at, host in enumerate(addresses, 1)]
    monkeypatch.setattr(contact, "client", lambda: nullcontext(SimpleNamespace(nodes=lambda: nodes)))
    assert scontrol.run(["show", "hostnames", "n[1-2].invalid"], "") == 0
    told = capsys.readouterr()
    assert (told.out.split(), told.err[: len(said)] if said else told.err) == (printed, said)


TASKS = """#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=2 --gres=gpu:2
srun --error none sh -c 'trap "echo told >>told-$SLURM_PROCID; exit 0" TERM; echo >ready-$SLURM_PROCID
    while :; do sleep 0.05; done'
"""


@pytest.mark.live
@two_cores
def test_each_task_is_told_once_that_its_job_is_cancelled(on_two: Shell, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(TASKS)
    job = int(on_two("sbatch", "--parsable", "job.sh").out)
    cluster.until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in range(4)))
    assert on_two("scancel", str(job)).code == 0
    cluster.until(lambda: cluster.client().job(job)["state"] in ENDED)
    assert cluster.client().job(job)["state"] == "cancelled"
    assert [(tmp_path / f"told-{rank}").read_text() for rank in range(4)] == ["told\n"] * 4


TORCHRUN = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:2 -o sum
echo "$SLURM_NNODES $SLURM_NTASKS $SLURM_TASKS_PER_NODE $SLURM_GPUS_ON_NODE"
srun sh -c 'echo "$SLURM_NODEID: $SLURM_GPUS_ON_NODE $SLURM_NTASKS" >on-$SLURM_PROCID'
srun PYTHON -m torch.distributed.run --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE \\
    --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$MASTER_ADDR:PORT train.py
"""

SUM = """import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
found = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(found)
if dist.get_rank() == 0:
    print(f"{int(found)} by {dist.get_world_size()}, {os.environ['LOCAL_WORLD_SIZE']} on each", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.live
@two_cores
def test_one_torchrun_on_each_machine_has_all_of_its_gpus(on_two: Shell, cluster: Cluster, tmp_path: Path) -> None:
    needs("torch", "the job sums over ranks by PyTorch, which is not installed")
    script = TORCHRUN.replace("PYTHON", sys.executable).replace("PORT", str(free_port()))
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "train.py").write_text(SUM)
    said = on_two("sbatch", "--wait", "--parsable", "job.sh")
    out = (tmp_path / "sum").read_text() if (tmp_path / "sum").exists() else cluster.logs()
    assert said.code == 0, (said, out)
    assert out.splitlines()[0] == "2 2 1(x2) 2"
    assert out.splitlines()[-1] == "15 by 4, 2 on each"
    assert [(tmp_path / f"on-{rank}").read_text() for rank in (0, 1)] == ["0: 2 2\n", "1: 2 2\n"]


@pytest.mark.live
@two_cores
def test_srun_alone_submits_over_machines(on_two: Shell) -> None:
    said = on_two("srun", "-N2", "--gpus-per-node=1", "sh", "-c", "echo $SLURM_PROCID of $SLURM_NTASKS")
    assert (said.code, sorted(said.out.splitlines())) == (0, ["0 of 2", "1 of 2"]), said


def request(*words: str) -> dict[str, object]:
    return build(parse("sbatch", words), "job.sh", Path("job.sh"))


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("-N2", "--gres=gpu:1", "-c4", "--mem=1G"),
         {"gpus": 2, "gpus_per_node": 1, "cores": 8, "host_memory_bytes": 2 * 2**30}),
        (("-N", "2-2", "--gpus=16", "--ntasks=16"), {"gpus": 16, "gpus_per_node": 8}),
        (("--nodes=2", "--gres=gpu:8"), {"gpus": 16, "gpus_per_node": 8}),
        (("-N2", "--gpus-per-node=8", "--ntasks-per-node=1"), {"gpus": 16, "gpus_per_node": 8}),
        (("-N2", "--gpus=16", "--ntasks-per-node=1"), {"gpus": 16, "gpus_per_node": 8}),
        (("--nodes=4", "--gpus-per-task=a100:1", "--ntasks-per-node=8"), {"gpus": 32, "gpu_type": "a100"}),
        (("--nodes=2", "--gpus-per-node=4", "--ntasks-per-gpu=1"), {"gpus": 8}),
    ],
)  # fmt: skip
def test_options_as_fields(words: tuple[str, ...], fields: dict[str, object]) -> None:
    made = request(*words)
    assert made["multi_node"] is True
    assert {name: made.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes=2",), "--nodes 2 needs GPUs on each machine: add --gres=gpu:1"),
        (("--nodes=2-4", "--gres=gpu:1"), "--nodes 2-4 is not done here: give one number of machines, as 2"),
        (("--nodes=two", "--gres=gpu:1"), "--nodes must be a number, at least 1, got 'two'"),
        (("--nodes=2", "--gpus=3"), "--gpus 3 must be a multiple of --nodes=2"),
        (("--nodes=2", "--gres=gpu:1", "-n", "3"), "--ntasks 3 must be a multiple of --nodes=2"),
        (("--nodes=2", "--gres=gpu:1", "--gpus=4"), "name different numbers of GPUs"),
    ],
)
def test_what_is_not_done_is_refused_with_what_to_do(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SlurmError) as refused:
        request(*words)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ([0, 1, 2], [2, 2, 1])),
        ({"nodes": "2"}, ([0, 1], [2, 2])),
        ({"named": ["c", "a"]}, ([2, 0], [1, 2])),
        ({"whole": 1}, ([0], [1])),
        ({"whole": 7}, ([0, 1, 2], [3, 2, 2])),
        ({"whole": 5}, ([0, 1, 2], [2, 2, 1])),
        ({"each": 1}, ([0, 1, 2], [1, 1, 1])),
    ],
)
def test_tasks_are_shared_out(asked: dict[str, object], expected: tuple[list[int], list[int]]) -> None:
    words: dict[str, object] = {"nodes": None, "named": (), "each": None, "whole": None, **asked}
    assert shared_out("abc", [2, 2, 1], **words) == expected  # type: ignore[arg-type]


def test_ranks_follow_the_machines() -> None:
    assert [list(TaskShare(node, "abc", [2, 2, 1]).ranks) for node in range(3)] == [[0, 1], [2, 3], [4]]
    assert (tasks_per_node([2, 2, 1]), tasks_per_node([1])) == ("2(x2),1", "1")


def test_another_program_where_the_leader_may_listen_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(steps.KEY, "ours")
    monkeypatch.setattr(steps, "ANSWER_MAX_S", 0.2)
    silent = socket.create_server(("127.0.0.1", 0))
    closed = socket.create_server(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in (silent, closed)]
    closed.close()
    with (
        silent,
        Listener(("127.0.0.1", 0), authkey=b"theirs") as theirs,
        Listener(("127.0.0.1", 0), authkey=b"ours") as ours,
    ):
        heard = list[str]()

        def refuse() -> None:
            with pytest.raises(AuthenticationError):
                theirs.accept()

        def answer() -> None:
            with ours.accept() as connection:
                heard.append(connection.recv_bytes().decode())

        threads = [threading.Thread(target=each) for each in (refuse, answer)]
        for thread in threads:
            thread.start()
        ports += [listener.address[1] for listener in (theirs, ours)]
        steps._reach("127.0.0.1", ports, waits=False).send({"step": 1}, b"data")
        for thread in threads:
            thread.join()
    assert heard == ['{"step": 1}\0data']
    with pytest.raises(SlurmError, match="does not answer"):
        steps._reach("127.0.0.1", ports[1:2], waits=False)


def test_reservations_are_told_as_slurm_tells_them(cluster: Cluster, on_two: Shell) -> None:
    assert on_two("sinfo", "-T").out.strip() == "No reservations in system"
    made = cluster.client().reserve(nodes="node-2", to="now+90m", users=["ann", "bob"], name="course")
    try:
        heads, row = on_two("sinfo", "-T").out.splitlines()
        assert heads.split() == ["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"]
        assert row.split()[:2] == ["course", "ACTIVE"]
        assert row.split()[-2:] == ["01:30:00", "node-2"]
        shown = on_two("scontrol", "show", "res", "course").out
        assert "ReservationName=course StartTime=" in shown
        assert "Nodes=node-2 NodeCnt=1" in shown
        assert "Users=ann,bob Accounts=(null) State=ACTIVE" in shown
        assert "Reservation other not found" in on_two("scontrol", "show", "reservation", "other").err
        refused = on_two("sbatch", "--reservation=course", "--wrap", "true")
        assert refused.err == "sbatch: error: --reservation 'course' is of ann, bob\n"
        refused = on_two("srun", "--reservation=other", "true")
        assert "'other': there is no such reservation; sinfo -T lists those there are" in refused.err
    finally:
        cluster.client().unreserve(made["name"])


def test_jobs_go_to_the_machines_of_their_reservation(cluster: Cluster, on_two: Shell) -> None:
    made = cluster.client().reserve(nodes="node-2", to="now+90m", users=["ann", getuser()], name="mine")
    later = cluster.client().reserve(nodes="node-1", to="now+3h", users=[getuser()], name="later", **{"from": "now+2h"})
    try:
        for words, variables in ((["--reservation=mine"], {}), ([], {"SBATCH_RESERVATION": "mine"})):
            done = on_two("sbatch", "-W", *words, "--wrap", "true", **variables)
            assert done.code == 0, done
            assert on_two("sacct", "-XnP", "-j", done.out.split()[-1], "-o", "NodeList").out.strip() == "node-2"
        refused = on_two("sbatch", "--reservation=mine", "-w", "node-1", "--wrap", "true")
        assert "'mine' is of node-2, and none of these is named here" in refused.err
        number = int(on_two("sbatch", "--parsable", "--reservation=later", "--wrap", "true").out)
        told = cluster.client().why(number)
        assert (told["why"], cluster.client().job(number)["needs"]["nodes"]) == ("begins-later", "node-1")
        cluster.client().cancel(number)
    finally:
        cluster.client().unreserve(made["name"])
        cluster.client().unreserve(later["name"])
