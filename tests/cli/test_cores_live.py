"""Cores of real processes follow what they achieve; what people see of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colane.api.jobs import JobObject
from colane.cli.jobs.ps import table
from colane.cli.submit import scripts
from colane.cli.submit.command import _tell_category
from colane.client.errors import Refused
from colane.cpu.config import TuningConfig
from colane.cpu.tuner import TunerName
from colane.model.job_spec import Category
from colane.server.config import core_config
from colane.settings.setting import SettingError
from colane.settings.sources import gather
from colane.settings.table import SERVER
from tests.cli.conftest import START_MAX_S, Up, start_up, until
from tests.needs import two_cores

CORES = sorted(os.sched_getaffinity(0))

FED = """
import os, sys, time
import colane.adaptor as colane
steps = colane.attach()
useful = int(sys.argv[1])
while True:
    cores = len(os.sched_getaffinity(0))
    time.sleep(0.1 / min(cores, useful) * (1.1 if cores > useful else 1.0))
    steps.step()
"""
"""A job as fast as it has cores, up to a number; a little slower with more (paper D, section III)."""


@pytest.fixture(scope="module")
def tuned_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state = tmp_path_factory.mktemp("tuned")
    up = start_up(state, "--devices", "cpu:1", "--core-tuner", "linear", "--core-window", "1s")
    yield up
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=START_MAX_S)


@pytest.mark.live
@two_cores
@pytest.mark.parametrize("useful", [1, 2])
def test_a_job_ends_with_the_cores_it_has_use_for(tuned_up: Up, useful: int) -> None:
    request = {"command": [sys.executable, "-c", FED, str(useful)], "family": f"fed-{useful}", "gpus": 1, "cores": 1}
    with tuned_up.client as client:
        number = client.submit({**request, "env": dict(os.environ), "category": "cv"})

        def settled() -> JobObject | None:
            job = client.job(number)
            return job if job["cores_useful"] is not None and "tries" not in (job["reason"] or "tries") else None

        job = until(settled, "the end of the search")
        (pid,) = [one for one in tuned_up.processes() if _runs(one, str(useful))]
        granted = until(lambda: os.sched_getaffinity(pid) == set(job["booked_cores"]) and job["booked_cores"], "cores")
        client.cancel(number)
    assert len(granted) == useful
    assert (job["cores_useful"], job["needs"]["cores"], job["needs"]["category"]) == (useful, 1, "cv")
    assert tuned_up.wait_for(number, "cancelled")["state"] == "cancelled"


@pytest.mark.live
@two_cores
def test_cores_that_an_administrator_takes_from_a_node_are_no_capacity_of_it_until_they_are_back(
    tmp_path: Path,
) -> None:
    up = start_up(tmp_path / "state", "--devices", "cpu:1")
    try:
        with up.client as client:
            (agent,) = [
                pid for pid in up.processes() if b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ]
            _allow(agent, CORES[:1])
            until(lambda: len(client.nodes()[0]["cores"]) == 1, "a node of one core")
            request = {"command": ["true"], "gpus": 1, "cores": 2, "env": dict(os.environ)}
            with pytest.raises(Refused, match=r"cores: asks for 2, but no node .* has more than 1"):
                client.submit(request)
            _allow(agent, CORES)
            until(lambda: client.nodes()[0]["cores"] == CORES, "its cores")
            number = client.submit(request)
        assert up.wait_for(number, "succeeded")["state"] == "succeeded"
    finally:
        up.process.send_signal(signal.SIGTERM)
        up.process.communicate(timeout=START_MAX_S)


def _allow(pid: int, cores: list[int]) -> None:
    """As a cpuset would that an administrator changes: for every thread of a process."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


def _runs(pid: int, useful: str) -> bool:
    """Whether a process is the job itself and not its supervisor."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return FED.encode() in words and words[0].decode() == sys.executable and words[3].decode() == useful


def test_ps_shows_cores_asked_granted_and_useful(capsys: pytest.CaptureFixture[str]) -> None:
    job: Any = {
        "id": 1, "name": "a", "user": "me", "gpus": ["n/0"], "node": "n", "submit_s": 0.0,
        "end_s": None, "sharing": None, "why": "",
        "state": "running", "lanes": [0], "booked_cores": [0, 1], "needs": {"cores": 5},
        "constraints": {"cores": 2}, "progress": None,
        "cores_useful": None, "steps": 0, "steps_total": None, "start_s": 0.0, "family": "f",
        "steps_total_learned": None,
    }  # fmt: skip
    table([job | {"cores_useful": 2}, job])
    out = capsys.readouterr().out
    assert "CORES" in out
    assert "5/2/2" in out
    assert "5/2/-" in out


def test_a_category_is_said_or_told_by_imports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text("import torch, torchaudio\n")
    job: dict[str, Any] = {"command": ["python", "train.py"], "workdir": str(tmp_path)}
    _tell_category(job)
    assert job["category"] == "speech"
    odd: dict[str, Any] = {**job, "category": "poetry"}
    _tell_category(odd)
    assert "category poetry is not known (cv, nlp, speech)" in capsys.readouterr().err
    assert scripts.category(["python", "absent.py"], tmp_path, None) is Category.UNKNOWN
    assert scripts.category(None, tmp_path, "resnet18") is Category.CV


def tuning(tuner: str, window: str) -> TuningConfig | None:
    return core_config(gather(SERVER, {"core_tuner": tuner, "core_window": window}, environment={})).tuning


def test_options_of_tuning() -> None:
    assert tuning("off", "90s") is None
    found = tuning("step", "3m")
    assert found is not None
    assert (found.tuner, found.window_s, found.settle_s, found.left_min_s) == (TunerName.STEP, 180, 10, 1800)
    for window in ("0s", "soon"):
        with pytest.raises(SettingError, match="--core-window"):
            tuning("linear", window)
