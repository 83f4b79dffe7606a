"""`colane up --engine slurm` on a real Slurm of three nodes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import COLANE, START_MAX_S, Colane, environment, until
from tests.engines.slurmd import Slurm, slurm
from tests.engines.ups import RUNS, Up

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), 3) as made:
        yield made


def pilots(cluster: Slurm, state: Path, *options: str) -> Up:
    return Up(state, "--engine", "slurm", *options, env=cluster.env)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def names(cluster: Slurm) -> set[str]:
    return {name.rpartition("-")[2] for name in cluster.jobs()}


def test_pilots_are_started_replaced_drained_and_cancelled(cluster: Slurm, state: Path, tmp_path: Path) -> None:
    up = pilots(cluster, state, "-N", "2", "--gres", "gpu:2", "-t", "30m", "--pilot-lead", "20s")
    try:
        until(lambda: sorted(up.nodes()) == ["slurm-1", "slurm-2"], "both pilots are nodes")
        shown = cluster.do("scontrol", "show", "job", cluster.id_of(job_name(cluster, "1")))
        assert "TimeLimit=00:30:00" in shown
        assert "Requeue=0" in shown
        assert "gres:gpu:2" in shown.replace("gres/gpu", "gres:gpu")
        with up.client as scheduler:
            out = tmp_path / "environment"
            told = {"command": ["sh", "-c", f"env >{out}.new; mv {out}.new {out}"], "env": {"PATH": os.environ["PATH"]}}
            job = scheduler.submit(told)
            until(lambda: scheduler.job(job)["state"] == "succeeded", "the job ends")
            assert [line for line in out.read_text().splitlines() if line.startswith(("SLURM", "SBATCH"))] == []
            waiting = {"command": ["sleep", "1000"], "preemptible": True}
            job = scheduler.submit(waiting)
            until(lambda: scheduler.job(job)["state"].startswith("running"), "the job runs")
            where = scheduler.job(job)["node"]
            assert where is not None
        # Near its end a pilot is told so: it is drained, and another is asked for.
        number = where.removeprefix("slurm-")
        cluster.do("scancel", "--batch", "--signal=USR1", cluster.id_of(job_name(cluster, number)))
        until(lambda: number not in names(cluster), "the pilot has ended")
        until(lambda: "slurm-3" in up.nodes(), "another is there")
        with up.client as scheduler:
            until(lambda: (scheduler.job(job)["node"] or where) != where, "the job has moved")
        until(lambda: where not in up.nodes(), "its node is forgotten")
        assert f"(slurm-{number}) has ended" in up.said()

        # Slurm's controller goes away: nothing is lost, nothing asked for twice.
        before = names(cluster)
        cluster.stop("slurmctld")
        until(lambda: "pilots that run go on" in up.said(), "it is said")
        cluster.start("slurmctld -D")
        until(lambda: "Slurm answers again" in up.said(), "it is back")
        assert names(cluster) == before
        assert len(up.nodes()) == 2
    finally:
        said = up.end()
    until(lambda: cluster.jobs() == {}, "Slurm has none of them")
    assert "may run on" not in said


def job_name(cluster: Slurm, number: str) -> str:
    return next(name for name in cluster.jobs() if name.endswith(f"-{number}"))


def test_kept_pilots_are_taken_over(cluster: Slurm, state: Path) -> None:
    options = ("-N", "1", "--pilot-time", "30m", "--keep-jobs")
    first = pilots(cluster, state, *options)
    until(lambda: "slurm-1" in first.nodes(), "it is there")
    first.end()
    assert list(names(cluster)) == ["1"]
    second = pilots(cluster, state, *options[:-1])
    try:
        until(lambda: "pilots from before" in second.said(), "it is known")
        until(lambda: "slurm-1" in second.nodes(), "it is heard of again")
        assert list(names(cluster)) == ["1"]
    finally:
        second.end()
    until(lambda: cluster.jobs() == {}, "Slurm has none of them")


def test_held_and_preempted_pilots_are_a_line_each_and_lose_nothing(cluster: Slurm, state: Path) -> None:
    cluster.do("scontrol", "update", "nodename=n[1-3]", "state=drain", "reason=full")
    up = pilots(cluster, state, "-N", "1", "-t", "30m", "--lease", "10s")
    try:
        until(lambda: "1" in names(cluster), "it is asked for")
        first = cluster.id_of(job_name(cluster, "1"))
        cluster.do("scontrol", "hold", first)
        held = f"pilot {first} is held (JobHeldAdmin): scontrol release {first}"
        until(lambda: held in up.said(), "that it is held is said")
        cluster.do("scontrol", "release", first)
        cluster.do("scontrol", "update", "nodename=n[1-3]", "state=resume")
        until(lambda: list(up.nodes()) == ["slurm-1"], "it is there")
        with up.client as scheduler:
            job = scheduler.submit({"command": ["sleep", "1000"]})
            until(lambda: scheduler.job(job)["state"] in RUNS, "a job runs")
            urgent = [
                "sbatch",
                "--parsable",
                "-p",
                "urgent",
                "-N3",
                "--exclusive",
                "-o",
                "/dev/null",
                "--wrap=sleep 1000",
            ]
            other = cluster.do(*urgent).strip()
            until(lambda: f"pilot {first} (slurm-1) has ended" in up.said(), "that it is gone is said")
            until(lambda: scheduler.node_if_known("slurm-1") is None, "it is forgotten")
            assert scheduler.job(job)["state"] == "queued"
            until(lambda: "2" in names(cluster), "another is asked for")
            assert cluster.jobs()[job_name(cluster, "2")] == "PENDING"
            cluster.do("scancel", other)
            until(lambda: scheduler.job(job)["state"] in RUNS, "it runs on the next pilot")
            shown = scheduler.job(job)
            assert (shown["node"], shown["attempt"]) == ("slurm-2", 2)
            assert up.said().count("has ended") == up.said().count(held) == 1
            assert "PREEMPTION" in next(line for line in up.said().splitlines() if "has ended" in line)

            # One that is killed as a whole says nothing at its end.
            kill_all_of(state / "pilots" / "2")
            until(lambda: scheduler.node_if_known("slurm-2") is None, "its lease is over, and it is forgotten")
            until(lambda: scheduler.job(job)["state"] in RUNS, "it runs on the third pilot")
            assert scheduler.job(job)["node"] == "slurm-3"
    finally:
        up.end()
    until(lambda: cluster.jobs() == {}, "Slurm has none of them")


LOST_ANSWER = """#!/bin/sh
# Slurm's answer to one of its commands is lost once this file is there: it has taken the job all the same.
{sbatch} "$@" || exit
case " $* " in *" --test-only "*) exit 0 ;; esac
[ -e {folder}/lose ] || exit 0
rm {folder}/lose
echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2
exit 1
"""


def test_what_goes_wrong_in_slurm_is_a_line_each_and_nothing_is_lost_nor_asked_for_twice(
    cluster: Slurm, state: Path, tmp_path: Path
) -> None:
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(LOST_ANSWER.format(sbatch=shutil.which("sbatch"), folder=tmp_path))
    wrapper.chmod(0o755)
    cluster.do("scontrol", "update", "partition=main", "MaxTime=10")
    env = {**cluster.env, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    up = Up(state, "--engine", "slurm", "-N", "1", "-t", "30m", "--lease", "10s", env=env)
    try:
        # More time than its partition gives.
        until(lambda: "1" in names(cluster), "it is asked for")
        first = cluster.id_of(job_name(cluster, "1"))
        in_vain = f"pilot {first} waits for what time alone may not bring (PartitionTimeLimit): scontrol show"
        until(lambda: in_vain in up.said(), "it is said", 60)
        cluster.do("scontrol", "update", "partition=main", "MaxTime=INFINITE")
        until(lambda: list(up.nodes()) == ["slurm-1"], "it is there")
        with up.client as scheduler:
            job = scheduler.submit({"command": ["sleep", "1000"], "preemptible": True})
            until(lambda: scheduler.job(job)["state"] in RUNS, "a job runs")

            # Nobody is known to Slurm any more.
            cluster.stop("munged")
            no_munge = "authentication error: is munge running here (systemctl status munge)?; pilots that run go on"
            until(lambda: no_munge in up.said(), "it is said", 60)
            cluster.start("munged")
            until(lambda: "Slurm answers again" in up.said(), "it is back")
            assert (names(cluster), scheduler.job(job)["attempt"]) == ({"1"}, 1)

            # It is cancelled, and Slurm's answer to the request of the next one is lost.
            (tmp_path / "lose").touch()
            scheduler.cancel(job)
            cluster.do("scancel", first)
            until(lambda: "Socket timed out on send/recv operation" in up.said(), "the lost answer is said", 60)
            until(lambda: "slurm-2" in up.nodes(), "the one that Slurm has taken is there")
            seen_s = up.nodes()["slurm-2"]["last_seen_s"]
            until(lambda: up.nodes()["slurm-2"]["last_seen_s"] > seen_s + 6.0, "it reports after a look at Slurm", 60)
            job = scheduler.submit({"command": ["sleep", "1000"]})
            until(lambda: scheduler.job(job)["state"] in RUNS, "a job runs there")
            assert names(cluster) == {"2"}
    finally:
        said = up.end()
    until(lambda: cluster.jobs() == {}, "Slurm has none of them")
    assert "Traceback" not in said


def kill_all_of(folder: Path) -> None:
    """SIGKILL to each process started from a pilot's folder: its keeper, its agent, and what holds its jobs."""
    of_it = f"{folder}/".encode()
    for stop in (signal.SIGSTOP, signal.SIGKILL):  # none may act on another's end
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if of_it in told and int(entry.name) != os.getpid():
                    os.kill(int(entry.name), stop)


def test_what_slurm_refuses_is_one_line(cluster: Slurm, state: Path) -> None:
    options = ["--engine", "slurm", "-t", "30m", "--gres", "tpu:1"]
    words = [*COLANE, "up", "--port", "0", "--state", str(state), *options]
    done = subprocess.run(
        words, env=environment(**cluster.env), capture_output=True, text=True, check=False, timeout=START_MAX_S
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == (
        "colane: --gres: tpu:1 is nothing that this Slurm has (Slurm: sbatch: error: Invalid generic resource (gres) "
        "specification): sinfo -o '%P %G' shows what is there, and without --gres a pilot is a node without GPUs"
    )
    assert cluster.jobs() == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "slurm"], "--pilot-time: must be given with --engine slurm"),
        (["--engine", "slurm", "-t", "30s"], "--pilot-time: must be a minute or more, as Slurm counts minutes"),
        (["--engine", "slurm", "-t", "5m"], "--pilot-lead: must be less than --pilot-time (300 s), got 300 s"),
        (["--engine", "slurm", "-t", "1h", "--slurm-options", "'"], "--slurm-options: No closing quotation"),
        (["--engine", "slrum"], "--engine"),
        (["--gres", "gpu:4"], "--gres: is for --engine slurm"),
        (["-N", "0"], "-N"),
        (["--engine", "ray"], "--address: must be given with --engine ray"),
        (["--engine", "ray", "--address", "6379"], "--address: must be HOST:PORT such as 127.0.0.1:6379, got '6379'"),
        (["--gpus-per-node", "4"], "--gpus-per-node: is for --engine ray"),
        (["--engine", "ray", "--address", "a:1", "-N", "2"], "--pilots: is for --engine slurm"),
    ],
)
def test_what_makes_no_sense_is_one_line(colane: Colane, tmp_path: Path, options: list[str], said: str) -> None:
    found = colane("up", "--state", str(tmp_path / "state"), *options)
    assert found.code == 2, found
    assert said in found.err
    assert len(found.err.splitlines()) == 1
    assert not (tmp_path / "state").exists()
