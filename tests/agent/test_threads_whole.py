"""Thread pools of real jobs are as large as the cores they are granted: the real agent, real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from colane.agent import main
from colane.agent.launch.environment import THREAD_POOLS
from colane.devices import NvmlDevices
from colane.devices.host import read_host
from colane.devices.nvml import Nvml
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.devices.fake_nvml import FakeGpu, FakeNvml
from tests.needs import two_cores

CORES = sorted(os.sched_getaffinity(0))

pytestmark = [pytest.mark.live, two_cores]

SAY = f"echo {' '.join(f'${name}' for name in THREAD_POOLS)}"


async def said(tmp_path: Path, marker: str, script: str, **wants: Any) -> list[str]:
    """What a job with these GPUs and cores prints."""
    name, _, value = marker.partition("=")
    fake, env = FakeScheduler(), {"PATH": os.environ["PATH"], name: value}
    fake.want(7, "sh", "-c", script, env=env | wants.pop("env", {}), **wants)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.ends)
        log = (await agent.get("/log/7/1")).text
    assert fake.ends[7, 1]["exit_code"] == 0, log
    return log.splitlines()


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [FakeGpu("GPU-0"), FakeGpu("GPU-1")]
    monkeypatch.setattr(main, "discover", lambda *_, **__: NvmlDevices(Nvml(FakeNvml(gpus)), read_host()))


@pytest.mark.parametrize("count", [1, 2])
async def test_a_job_without_gpus_has_a_thread_for_each_of_its_cores(tmp_path: Path, marker: str, count: int) -> None:
    lines = await said(tmp_path, marker, SAY, gpus=(), cores=CORES[:count])
    assert lines == [" ".join([str(count)] * len(THREAD_POOLS))]


async def test_each_rank_has_its_part_of_them(tmp_path: Path, marker: str) -> None:
    lines = await said(tmp_path, marker, SAY, gpus=(0, 1), cores=CORES[:2], ranks="per-gpu")
    assert lines == [" ".join(["1"] * len(THREAD_POOLS))] * 2


async def test_what_the_job_says_of_them_holds(tmp_path: Path, marker: str) -> None:
    env = {"OMP_NUM_THREADS": "5"}
    lines = await said(tmp_path, marker, "echo $OMP_NUM_THREADS", gpus=(0,), cores=CORES[:2], env=env)
    assert lines == ["5"]
