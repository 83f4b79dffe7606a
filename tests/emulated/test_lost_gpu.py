"""A GPU that is lost costs the jobs on others nothing, whether the agent is there or comes later."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import JOB, STEP_S, Lane
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]


async def test_an_agent_that_is_started_anew_while_a_gpu_is_lost_leaves_the_jobs_of_others_alone(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "gpus", *(Kind(f"GPU-{number}") for number in range(3)))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    command = (sys.executable, JOB, str(lane.notes(1)), str(STEP_S), "0")
    lane.fake.want(1, *command, env=lane.env, gpus=(2,))
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await lane.goes_on(agent, (1,))
        pid = lane.pid(1)
    machine.gpu(0).lose()
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await lane.goes_on(agent, (1,))
        assert lane.pid(1) == pid
        told = lane.fake.nodes["node-1"]["gpus"]
        assert [(gpu["uuid"], gpu["healthy"]) for gpu in told] == [("GPU-0", False), ("GPU-1", True), ("GPU-2", True)]
        await lane.end(agent, (1,))
    steps = lane.count(1)
    assert lane.fake.ends[1, 1]["progress"]["steps"] == steps, "each step is done once"
