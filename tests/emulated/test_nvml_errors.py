"""An agent whose GPUs answer with any of NVML's errors at random stays up, and so do its jobs; `COLANE_FUZZ=10` makes
1,000 rounds."""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.agent.agents import running
from tests.agent.lane import JOB, STEP_S, Lane
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]
ERRORS = tuple(code for code in (*range(1, 31), pynvml.NVML_ERROR_UNKNOWN))
ROUNDS = 100 * int(os.environ.get("COLANE_FUZZ", "1"))
UUIDS = ["GPU-0", "GPU-1"]
CANNOT_TELL = "the driver does not tell what each process holds of the GPUs: memory of jobs is estimated"


class Moody(EmulatedNvml):
    """Answers a share of the calls with any of NVML's errors."""

    share = 0.0
    failed = 0
    draws = random.Random(30)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name != "nvmlInit" and Moody.draws.random() < Moody.share:
            Moody.failed += 1
            return partial(_fails, Moody.draws.choice(ERRORS))
        return super().__getattribute__(name)


def _fails(code: int, *_: object) -> None:
    raise pynvml.NVMLError(code)


async def test_an_agent_stays_up_whatever_nvml_answers(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path / "gpus", *map(Kind, UUIDS))
    monkeypatch.setitem(sys.modules, "pynvml", Moody(machine.home))
    monkeypatch.setattr(Moody, "share", 0.0)
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    lane.fake.want(1, sys.executable, JOB, str(lane.notes(1)), str(STEP_S), "0", env=lane.env, gpus=(1,))
    async with running(tmp_path / "state", lane.fake, devices="gpu", heartbeat_s=0.02) as agent:
        await lane.goes_on(agent, (1,))
        pid, before, said = lane.pid(1), len(lane.fake.reports), len(caplog.records)
        for share in (0.02, 0.2, 0.9):
            Moody.share = share
            goal = len(lane.fake.reports) + ROUNDS // 3
            await agent.until(partial(lane.fake.has_reported, goal), f"rounds with {share:.0%} of errors")
        Moody.share = 0.0
        await agent.until(lambda: all(gpu["healthy"] for gpu in lane.fake.reports[-1]["gpus"]), "all are well again")
        await lane.goes_on(agent, (1,))
        assert lane.pid(1) == pid
        assert caplog.records[said:] == []
        Moody.share = 0.3
    for _ in range(3):
        async with running(tmp_path / "state", lane.fake, devices="gpu", heartbeat_s=0.02) as agent:
            await lane.goes_on(agent, (1,))
            assert lane.pid(1) == pid
    Moody.share = 0.0
    async with running(tmp_path / "state", lane.fake, devices="gpu", heartbeat_s=0.02) as agent:
        await agent.until(lambda: all(gpu["healthy"] for gpu in lane.fake.reports[-1]["gpus"]), "all are well again")
        await lane.end(agent, (1,))
    assert {message for report in lane.fake.reports for message in report["messages"]} <= {CANNOT_TELL}
    assert Moody.failed > ROUNDS
    assert {tuple(gpu["uuid"] for gpu in report["gpus"]) for report in lane.fake.reports[before:]} == {tuple(UUIDS)}
    assert lane.fake.ends[1, 1]["progress"]["steps"] == lane.count(1), "each step is done once"
