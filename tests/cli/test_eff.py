"""`colane eff`, and what it brings to `show` and `ps`; the notes by hand-computed jobs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from colane.cli.app import run
from colane.cli.jobs import objects
from colane.client.client import Client
from colane.client.errors import Refused
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.job_spec import JobSpec
from colane.model.phases import Attempt
from colane.model.placement import Placement, Slot
from colane.server.views.efficiency import efficiency
from tests.cli.shots import node

GB = 10**9


def ended(state: JobState = JobState.SUCCEEDED, gpus: int = 1, ran_s: float = 3600.0, **fields: Any) -> Job:
    spec = JobSpec(name="j", family="f", user="ann", gpus=gpus, **fields)
    slots = tuple(Slot(GpuId("n1", number), 0) for number in range(gpus))
    run_of_it = Attempt(start_s=100.0)
    return Job(JobId(7), spec, 0.0, state, 1, Placement(slots), 100.0, 100.0 + ran_s, run=run_of_it)


def used(job: Job, **means: float) -> Any:
    names = ("busy_ratio", "device_bytes", "cpu_cores", "host_bytes", "steps_per_s", "share_ratio")
    columns = {name: np.array([means.get(name, np.nan)] * 3 + [np.nan]) for name in names}
    return efficiency(job, (), columns, {}, 10_000.0)


def flags(found: Any) -> list[str]:
    return [note["flag"] for note in found["notes"]]


@pytest.mark.parametrize(
    ("job", "means", "said"),
    [
        (ended(gpu_memory_bytes=80 * GB), {"device_bytes": 5 * GB, "busy_ratio": 0.9}, ["--gpu-memory 6GB"]),
        (ended(gpu_memory_bytes=8 * GB), {"device_bytes": 5 * GB, "busy_ratio": 0.9}, []),
        (ended(gpus=4), {"busy_ratio": 0.2}, ["--gpus 1"]),
        (ended(gpus=4), {"busy_ratio": 0.0}, ["--gpus 0"]),
        (ended(), {"busy_ratio": 0.3}, [""]),
        (ended(), {"busy_ratio": 0.001, "steps_per_s": 0.5}, [""]),
        (ended(kind=JobKind.INFERENCE), {"busy_ratio": 0.0}, []),
        (ended(cores=16), {"cpu_cores": 3.0}, ["--cores 4"]),
        (ended(cores=4), {"cpu_cores": 3.9}, ["--cores 6"]),
        (ended(host_memory_bytes=64 * GB), {"host_bytes": 2 * GB}, ["--host-memory 3GB"]),
        (ended(host_memory_bytes=10 * GB), {"host_bytes": 9.8 * GB}, ["--host-memory 12GB"]),
        (ended(time_limit_s=86_400.0), {}, ["--time-limit 90m"]),
        (ended(JobState.TIMED_OUT, time_limit_s=3600.0), {}, ["--time-limit 120m"]),
        (ended(ran_s=30.0, cores=16), {"cpu_cores": 0.1}, []),
        (ended(), {}, []),
    ],
)
def test_what_could_be_asked_for_instead(job: Job, means: dict[str, float], said: list[str]) -> None:
    assert flags(used(job, **means)) == said


def test_what_is_not_known_is_not_zero() -> None:
    found = used(ended(cores=4))
    assert [row["ratio"] for row in found["rows"]] == [None] * 5
    assert [row["used"] for row in found["rows"][:-1]] == [None] * 4


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Mock:
    made = Mock(Client)
    made.health.return_value = {}
    monkeypatch.setattr(objects, "client", lambda: nullcontext(made))
    return made


def test_eff_prints_a_row_each_and_the_notes(scheduler: Mock, capsys: pytest.CaptureFixture[str]) -> None:
    job = ended(gpu_memory_bytes=80 * GB, cores=4)
    scheduler.efficiency.return_value = used(job, busy_ratio=0.5, device_bytes=5e9, cpu_cores=2.5)
    assert run(["eff", "7"]) == 0
    out = capsys.readouterr().out
    rows = {line[:11].strip(): line.split() for line in out.splitlines()}
    assert rows["GPU memory"][2:] == ["5", "GB", "80", "GB", "6", "%", "#..................."]
    assert rows["host memory"][2:4] == ["-", "-"]
    assert "ask for 6GB (--gpu-memory 6GB)" in out


def test_ps_says_which_are_idle_and_an_older_scheduler_is_asked_in_vain(
    scheduler: Mock, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler.listing.return_value = {"jobs": [], "left_out": {"running": 0, "queued": 0, "ended": False}}
    scheduler.overview.side_effect = Refused(404, [])
    assert run(["ps"]) == 0
    assert "no job" in capsys.readouterr().err


def test_nodes_says_which_devices_no_job_uses(scheduler: Mock, capsys: pytest.CaptureFixture[str]) -> None:
    scheduler.overview.return_value = {"idle": [{"job": 7, "since_s": 0.0, "idle_s": 2520.0}]}
    two = node("n1", {0: [[7]], 1: [[7], [8]]}, gpus=2, messages=[], agent_version="1", scheduler_version="1")
    scheduler.nodes.return_value = [
        {**two, "gpus": [{**gpu, "cores": [], "sharing": "mps"} for gpu in two["gpus"]], "notice": None}
    ]
    assert run(["nodes"]) == 0
    first, second = [line for line in capsys.readouterr().out.splitlines() if "H100" in line]
    assert "idle 42 min" in first
    assert "busy" in second
