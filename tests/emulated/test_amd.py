"""An agent on AMD's GPUs, on made-up records of AMD SMI: jobs are shown their own, by ROCm's variables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.devices.fake_amdsmi import FakeAmd, FakeAmdSmi

pytestmark = [pytest.mark.live]
NAMES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY")
SHOWS = f"import os; print(*map(os.environ.get, {NAMES}))"


async def test_an_agent_runs_jobs_on_them(lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmi([FakeAmd("0x0A", 0), FakeAmd("0x0B", 1)]))
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    lane.fake.want(1, sys.executable, "-c", SHOWS, env=lane.env, gpus=(1,), mps=True)
    async with running(tmp_path / "state", lane.fake, devices="amd") as agent:
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it ends")
        assert (await agent.get("/log/1/1")).text == "GPU-0b 0 None\n"
        node = lane.fake.nodes["node-1"]
    assert [gpu["uuid"] for gpu in node["gpus"]] == ["GPU-0a", "GPU-0b"]
    assert {gpu["sharing"] for gpu in node["gpus"]} == {"time-slice"}
    assert node["host_refusal"] == "processes can be moved off NVIDIA's GPUs only"
