"""Fixtures of the tests on emulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adaptor.jobs import Job, make_job
from tests.agent.conftest import lane, mark, marker  # noqa: F401 - fixtures
from tests.emulated.job.emulated_cuda.device import HOME_ENV, Kind
from tests.emulated.machine import JOB_SIDE, Machine

LOOPS = str(Path(__file__).with_name("loops.py"))
WARM = str(Path(__file__).parents[1] / "adaptor" / "warm.py")
Loop = Callable[..., Job]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with two GPUs."""
    return Machine(tmp_path / "gpus", Kind("GPU-0"), Kind("GPU-1"))


@pytest.fixture
def job(tmp_path: Path, machine: Machine) -> Job:
    """An attempt as an agent prepares it, in an environment in which GPUs are installed."""
    made = make_job(tmp_path / "job", pythonpath=str(JOB_SIDE))
    made.env |= machine.env | {"PYTHONPATH": made.env["PYTHONPATH"]}
    return made


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A Python that has imported PyTorch over emulated GPUs, and forks for each script."""
    env = {**os.environ, "PYTHONPATH": str(JOB_SIDE), HOME_ENV: str(tmp_path_factory.mktemp("no-gpus"))}
    with subprocess.Popen(
        [sys.executable, WARM], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def loop(forks: subprocess.Popen[str], job: Job) -> Loop:
    """Run one of the loops in a fork."""

    def run(*argv: str, **env: str) -> Job:
        places = {name: str(job.folder / name) for name in ("stdout", "stderr")}
        order = {"script": LOOPS, "argv": list(argv), "env": {**job.env, **env}, "cwd": str(job.folder), **places}
        assert forks.stdin is not None
        assert forks.stdout is not None
        print(json.dumps(order), file=forks.stdin, flush=True)
        status = forks.stdout.readline()
        job.out, job.errors = ((job.folder / name).read_text() for name in places)
        assert status == "0\n", job.errors
        return job

    return run
