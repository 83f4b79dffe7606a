"""Fixtures of the adaptor's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adaptor.forks import Forks
from tests.adaptor.jobs import Job, make_job

Trained = Callable[..., Job]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """An attempt as an agent prepares it."""
    return make_job(tmp_path / "job")


@pytest.fixture
def trained(forks: Forks, job: Job) -> Trained:
    """Run a script in a fork of a Python that has imported PyTorch; what it printed is in `out` and `errors`."""

    def run(script: str, **env: str) -> Job:
        path = job.folder / "train.py"
        path.write_text(script)
        job.ran(forks.start(path, env={**job.env, **env}, cwd=job.folder))
        return job

    return run
