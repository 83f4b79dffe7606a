"""A job on several instances of a GPU in MIG mode, of which CUDA shows a process one: it is not started so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

pytestmark = [pytest.mark.live]


class WithInstances(FakeNvml):
    """NVML of a GPU that is cut in two."""

    def __init__(self) -> None:
        name = "NVIDIA H100 MIG 3g.40gb"
        halves = [FakeGpu(f"MIG-{half}", name=name, total_bytes=40 * GB) for half in "ab"]
        super().__init__([FakeGpu("GPU-0", instances=halves)])

    def nvmlInit(self) -> None:  # noqa: N802
        """There is a driver."""


async def test_a_job_is_given_one_instance(lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", WithInstances())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shown = (sys.executable, "-c", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
    lane.fake.want(1, *shown, env=lane.env, gpus=(0, 1))
    lane.fake.want(2, *shown, env=lane.env, gpus=(1,))
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end")
        log = (await agent.get("/log/2/1")).text
    assert log == "MIG-b\n"
    refused = lane.fake.ends[1, 1]
    assert refused["outcome"] == "not-started"
    assert refused["detail"].startswith("devices 0, 1 are MIG instances, and CUDA shows a process one of these only")
