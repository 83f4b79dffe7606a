"""A GPU that is lost costs the jobs on others nothing, whether the agent is there or comes later; one whose driver told
of a fatal error stays out of use until it was reset, whichever agent looks."""

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


XIDS = (48, 79, 95, 119, 140, 110, 158, 144, 150, 154)
"""Fatal by themselves, or where the driver does not say what must be done."""


async def test_a_gpu_with_a_fatal_error_is_ill_to_all_agents_until_it_was_reset(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml = EmulatedNvml(Machine(tmp_path / "gpus", *(Kind(f"GPU-{xid}") for xid in (0, *XIDS))).home)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    async def told(*healthy: bool) -> None:
        """What an agent says that is started now."""
        lane.fake.reports.clear()
        async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
            seen = [gpu["healthy"] for gpu in lane.fake.nodes["node-1"]["gpus"]]
            assert seen == list(healthy)
            for gpu, xid in zip(nvml.gpus[1:], XIDS, strict=True):
                gpu.xids += [xid] * first
            await agent.until(lambda: lane.fake.reports and lane.fake.reports[-1]["gpus"], "a report")
            if first:
                await agent.until(lambda: ill(lane.fake.reports[-1]["gpus"]) == len(XIDS), "all are ill")

    def ill(gpus: list[dict[str, object]]) -> int:
        return sum(not gpu["healthy"] for gpu in gpus)

    first, count = True, len(XIDS)
    nvml.gpus[-1].is_persistent = False
    await told(*[True] * (count + 1))
    first = False
    await told(True, *[False] * count)
    for gpu in nvml.gpus[2:]:
        gpu.reset()
    await told(True, False, *[True] * (count - 2), False)
    for gpu in nvml.gpus[2:-1]:
        gpu.energy_mj = 10**9
    await told(True, False, *[True] * (count - 2), False)
    monkeypatch.setattr("colane.devices.xid.boot_id", lambda: "the next boot")
    await told(*[True] * (count + 1))
