"""What public tools that drive Slurm say to its verbs, written from their documentation, against a real agent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import Said, until
from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live

DASK: Final = """#!/usr/bin/env bash

#SBATCH -J dask-worker
#SBATCH -e logs/dask-worker-%J.err
#SBATCH -o logs/dask-worker-%J.out
#SBATCH -p default
#SBATCH -A myproject
#SBATCH -n 1
#SBATCH --cpus-per-task=1
#SBATCH --mem=954M
#SBATCH -t 00:30:00
JOB_ID=${SLURM_JOB_ID%;*}

echo worker of $JOB_ID with $SLURM_CPUS_PER_TASK
"""
"""`dask_jobqueue.SLURMCluster(queue=, account=, cores=1, memory=, log_directory=).job_script()`."""

PARSL: Final = """#!/bin/bash

#SBATCH --job-name=parsl.htex.block-0.1733
#SBATCH --output=parsl.stdout
#SBATCH --error=parsl.stderr
#SBATCH --nodes=1
#SBATCH --time=00:10:00
#SBATCH --ntasks-per-node=1
#SBATCH --mem=1g
#SBATCH --cpus-per-task=1
#SBATCH --exclusive

export JOBNAME="parsl.htex.block-0.1733"

set -e
export CORES=$SLURM_CPUS_ON_NODE
export NODES=$SLURM_JOB_NUM_NODES

[[ "1" == "1" ]] && echo "Found nodes : $NODES"

cat << SLURM_EOF > cmd_$SLURM_JOB_NAME.sh
echo pool of $JOBNAME
SLURM_EOF
chmod a+x cmd_$SLURM_JOB_NAME.sh

srun --ntasks 1 -l bash cmd_$SLURM_JOB_NAME.sh

[[ "1" == "1" ]] && echo "Done"
"""
"""`parsl.providers.SlurmProvider(launcher=SrunLauncher())`."""


def test_dask_jobqueue(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "dask.sh").write_text(DASK)
    said = shell("sbatch", "dask.sh")
    number = re.search(r"(?P<job_id>\d+)", said.out)
    assert number is not None
    until(lambda: "COMPLETED" in shell("sacct", "-X", "-n", "-j", number[0], "-o", "state").out, "its end")
    assert (tmp_path / "logs" / f"dask-worker-{number[0]}.out").read_text() == f"worker of {number[0]} with 1\n"
    assert shell("scancel", number[0]).code == 0, "as the cluster closes"


def test_parsl(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "parsl.sh").write_text(PARSL)
    said = re.fullmatch(r"Submitted batch job (?P<id>\S*)\n", shell("sbatch", "parsl.sh").out)
    assert said is not None
    number, held = said["id"], shell("sbatch", "--parsable", "--hold", "--wrap", "true").out.strip()
    asked = ("-X", "--noheader", "--format=jobid,state", "--job", f"{number},{held}")
    until(lambda: "COMPLETED" in shell("sacct", *asked).out, "its end")
    rows = [line.split() for line in shell("sacct", *asked).out.splitlines()]
    assert rows == [[number, "COMPLETED"], [held, "PENDING"]]
    assert shell("squeue", "--noheader", "--format=%i %t", "--job", f"{number},{held}").out == f"{held} PD\n"
    assert (tmp_path / "parsl.stdout").read_text() == ("Found nodes : 1\n0: pool of parsl.htex.block-0.1733\nDone\n")
    assert shell("scancel", number, held).code == 0


def test_snakemake(shell: Shell, tmp_path: Path) -> None:
    """Its executor plugin: one name for all jobs of a run, by which it asks for their states."""
    run = "0b3c6a5e-1111-4222-8333-444455556666"
    (tmp_path / "slurm_logs").mkdir()
    assert shell("sacctmgr", "-n", "-s", "list", "user", "root", "format=account%256").code == 0
    assert shell("sshare", "-U", "--format", "Account%256", "--noheader").code == 0
    assert shell("sinfo", "-o", "%P", "--noheader").out == "default*\n"

    def sbatch(*words: str) -> Said:
        return shell(
            "sbatch", "--parsable", "--job-name", run, "--output", f"{tmp_path}/slurm_logs/%j.log", "--export=ALL",
            "--comment", "rule_align_wildcards_a", "-A", "lab", "-p", "default", "-t", "10", "--mem", "100",
            "--ntasks=1", "--cpus-per-task=1", "-D", str(tmp_path), *words,
        )  # fmt: skip

    number = sbatch("--wrap=srun -n1 --cpu-bind=q --cpus-per-task=1 echo aligned").out.strip()
    gpu = sbatch("--gpus=1", "--ntasks-per-gpu=1", "--hold", "--wrap=true").out.strip()
    asked = (
        "-X", "--parsable2", "--clusters", "all", "--noheader", "--format=JobIdRaw,State",
        "--starttime", "now-2days", "--endtime", "now", "--name", run,
    )  # fmt: skip
    until(lambda: f"{number}|COMPLETED" in shell("sacct", *asked).out.splitlines(), "its end")
    assert f"{gpu}|PENDING" in shell("sacct", *asked).out.splitlines()
    assert (tmp_path / "slurm_logs" / f"{number}.log").read_text() == "aligned\n"
    assert shell("scancel", number, gpu, "--clusters=all") == Said(0, "", "")
    assert shell("scancel", gpu, "--clusters=other").err == (
        "scancel: error: --clusters other is not done here: there is one cluster, that of COLANE_URL\n"
    )


def test_a_stage_of_dvc_waits_for_its_job(shell: Shell, tmp_path: Path) -> None:
    """It has no executor of its own: a stage is a command, and ends as that does."""
    done = shell("sbatch", "--wait", "-o", "train.log", "--wrap", "echo trained > model; exit 3")
    assert done.code == 3
    assert (tmp_path / "model").read_text() == "trained\n"
    assert shell("srun", "-n1", "cat", "model").out == "trained\n"
