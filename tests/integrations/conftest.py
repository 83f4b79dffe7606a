from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from colane.integrations.slurm.install import install
from tests.cli.conftest import START_MAX_S, Said, Up, environment, start_up

Shell = Callable[..., Said]


@pytest.fixture(scope="session")
def slurm_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One `colane up` with two devices for all tests of what other software needs."""
    up = start_up(tmp_path_factory.mktemp("up") / "state", "--devices", "cpu:2:4GB", "--name", "here")
    yield up
    code, said = up.end(15)
    assert code == 0, said
    up.leaves_none()


@pytest.fixture(scope="session")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of Slurm's verbs."""
    directory = tmp_path_factory.mktemp("verbs")
    install(directory)
    return directory


@pytest.fixture
def shell(slurm_up: Up, verbs: Path, tmp_path: Path) -> Shell:
    """Runs words, as a shell with the verbs first in its path does, in this test's directory."""
    return shell_in(tmp_path, verbs, slurm_up.env)


def shell_in(directory: Path, verbs: Path, variables: Mapping[str, str]) -> Shell:
    """Return what runs words in a directory, as a shell with Slurm's verbs first in its path does."""
    own = {**variables, "PATH": f"{verbs}{os.pathsep}{os.environ['PATH']}"}

    def call(*words: str, given: str | None = None, **more: str) -> Said:
        done = subprocess.run(
            words, env=environment(**own, **more), cwd=directory, input=given, capture_output=True, text=True,
            timeout=START_MAX_S, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    return call
