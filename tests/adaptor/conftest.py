"""Fixtures of the adaptor's tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adaptor.jobs import Job, make_job

WARM = str(Path(__file__).with_name("warm.py"))
Trained = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """An attempt as an agent prepares it."""
    return make_job(tmp_path / "job")


@pytest.fixture(scope="module")
def imports() -> tuple[str, ...]:
    """What the Python that forks imports beside PyTorch."""
    return ()


@pytest.fixture(scope="module")
def forks(imports: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """A Python that has imported PyTorch, and forks for each script."""
    with subprocess.Popen(
        [sys.executable, WARM, *imports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def trained(forks: subprocess.Popen[str], job: Job) -> Trained:
    """Run a script in a fork of a Python that has imported PyTorch; what it printed is in `out` and `errors`."""

    def run(script: str, **env: str) -> Job:
        path = job.folder / "train.py"
        path.write_text(script)
        places = {name: str(job.folder / name) for name in ("stdout", "stderr")}
        order = {"script": str(path), "env": {**job.env, **env}, "cwd": str(job.folder), **places}
        assert forks.stdin is not None
        assert forks.stdout is not None
        print(json.dumps(order), file=forks.stdin, flush=True)
        status = forks.stdout.readline()
        job.out, job.errors = ((job.folder / name).read_text() for name in places)
        assert status == "0\n", job.errors
        return job

    return run
