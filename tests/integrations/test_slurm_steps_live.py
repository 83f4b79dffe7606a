"""Steps of a job on one machine, against a real agent: what they share out, what they wait for, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.conftest import Shell

pytestmark = pytest.mark.live

HEAD = (
    "#!/bin/bash\n#SBATCH -J steps --ntasks=4 -o out\n"
    "export SLURM_JOB_GPUS=a,b,c,d CUDA_VISIBLE_DEVICES=a,b,c,d SLURM_GPUS_ON_NODE=4\n"
)
"""As a job with four GPUs is told, which this machine has not."""


def run(shell: Shell, tmp_path: Path, body: str) -> str:
    (tmp_path / "job.sh").write_text(HEAD + body)
    said = shell("sbatch", "--wait", "job.sh")
    found = (tmp_path / "out").read_text()
    assert said.code == 0, (said, found)
    return found


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("-n 4", ["a,b,c,d"] * 4),
        ("-n 4 --gpus-per-task=1", ["a", "b", "c", "d"]),
        ("-n 2 --gpus-per-task=2", ["a,b", "c,d"]),
        ("-n 2 --gpus-per-task=1 --gpu-bind=none", ["a,b", "a,b"]),
        ("-n 2 --gpus=3", ["a,b,c", "a,b,c"]),
        ("-n 1 --gres=gpu:2", ["a,b"]),
        ("-n 1 --gpus-per-node=1 --overlap", ["a"]),
        ("-n 8 --overcommit", ["a,b,c,d"] * 8),
        ("-n 1 --jobid $SLURM_JOB_ID", ["a,b,c,d"]),
    ],
)
def test_each_task_sees_what_its_step_has(shell: Shell, tmp_path: Path, words: str, shown: list[str]) -> None:
    found = run(shell, tmp_path, f"srun {words} sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'\n")
    assert sorted(found.splitlines()) == [f"{rank} {gpus}" for rank, gpus in enumerate(shown)]


def test_what_a_job_says_of_each_task_holds_in_its_steps(shell: Shell, tmp_path: Path) -> None:
    found = run(shell, tmp_path, "SLURM_GPUS_PER_TASK=1 srun sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'\n")
    assert sorted(found.splitlines()) == ["0 a", "1 b", "2 c", "3 d"]


def test_steps_at_one_time_have_gpus_and_numbers_of_their_own(shell: Shell, tmp_path: Path) -> None:
    """Each goes on until all four have begun."""
    step = "echo $SLURM_STEP_ID $CUDA_VISIBLE_DEVICES >>got; until [ $(wc -l <got) = 4 ]; do sleep 0.1; done"
    run(shell, tmp_path, f"for i in 1 2 3 4; do srun --exact -n1 --gpus=1 -o %s.txt sh -c '{step}' & done; wait\n")
    numbers, gpus = zip(*(line.split() for line in (tmp_path / "got").read_text().splitlines()), strict=True)
    assert (sorted(numbers), sorted(gpus)) == (["0", "1", "2", "3"], ["a", "b", "c", "d"])
    assert all((tmp_path / f"{number}.txt").exists() for number in range(4))


@pytest.mark.parametrize(
    ("first", "second"), [("--exclusive -n4", "--exclusive -n1"), ("-n1 --gpus=3", "-n1 --exact --gpus-per-task=2")]
)
def test_a_step_waits_for_what_another_has(shell: Shell, tmp_path: Path, first: str, second: str) -> None:
    """The first ends once the second has said that it waits."""
    waits = "touch begun; until grep -q 'until they end' second.err; do sleep 0.1; done; echo first"
    body = (
        f'srun {first} sh -c "[ \\$SLURM_PROCID != 0 ] || {{ {waits}; }}" &\n'
        "until [ -e begun ]; do sleep 0.1; done\n"
        f"srun {second} echo second 2>second.err\nwait\n"
    )
    (tmp_path / "second.err").touch()
    assert run(shell, tmp_path, body) == "first\nsecond\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-n 8", "8 tasks are more than this job has room for (4 tasks, 4 cores, 4 GPUs)"),
        ("-N 2", "--nodes must be 1, the machines of this job, got '2'"),
        ("-n 1 --gpus=5", "the step asks for 5 GPUs of a machine, and this job has 4"),
        ("-n 4 --gpus-per-task=2", "the step asks for 8 GPUs of a machine, and this job has 4"),
        ("--jobid 999", "--jobid must be this job"),
    ],
)
def test_more_than_the_job_has_is_refused(shell: Shell, tmp_path: Path, words: str, said: str) -> None:
    found = run(shell, tmp_path, f"srun {words} echo runs; echo code $?\n")
    assert said in found
    assert found.splitlines()[-1] == "code 1"
    assert "runs" not in found


def test_a_step_of_no_job_is_refused(shell: Shell) -> None:
    said = shell("srun", "--jobid", "1", "true")
    assert (said.code, said.err) == (
        1,
        "srun: error: --jobid is not done here: steps are started from within their job\n",
    )


@pytest.mark.parametrize("head", ["#!/bin/bash", "#!/bin/bash -e", "#!/usr/bin/env bash"])
def test_functions_that_the_shell_exports_reach_the_script_and_its_steps(
    shell: Shell, tmp_path: Path, head: str
) -> None:
    """`module` is one."""
    (tmp_path / "job.sh").write_text(f"{head}\n#SBATCH -o out\nmodule load cuda\nsrun bash -c 'module load step'\n")
    said = shell("bash", "-c", 'module() { echo "module $*"; }; export -f module; sbatch --wait job.sh')
    assert said.code == 0, said
    assert (tmp_path / "out").read_text() == "module load cuda\nmodule load step\n"
