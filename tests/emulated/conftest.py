"""Fixtures of the tests on emulated GPUs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adaptor.forks import Forks
from tests.adaptor.jobs import Job, make_job
from tests.agent.conftest import lane, mark, marker  # noqa: F401 - fixtures
from tests.emulated.job.emulated_cuda.device import HOME_ENV, Kind
from tests.emulated.machine import JOB_SIDE, OTHERS, Machine

LOOPS = str(Path(__file__).with_name("loops.py"))
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


@pytest.fixture
def state() -> Iterator[Path]:
    """The agent's directory, whose path has room for the sockets of a daemon (108 bytes) wherever tests lie."""
    with tempfile.TemporaryDirectory(prefix="mps-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """A Python that has imported PyTorch over emulated GPUs, and forks for each script."""
    with Forks(env={"PYTHONPATH": f"{JOB_SIDE}:{OTHERS}", HOME_ENV: str(tmp_path_factory.mktemp("no-gpus"))}) as made:
        yield made


@pytest.fixture
def loop(forks: Forks, job: Job) -> Loop:
    """Run one of the loops in a fork."""

    def run(*argv: str, **env: str) -> Job:
        job.ran(forks.start(LOOPS, *argv, env={**job.env, **env}, cwd=job.folder))
        return job

    return run
