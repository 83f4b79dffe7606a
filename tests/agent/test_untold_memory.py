"""A driver that hides what each process holds of a GPU: it is said once, and jobs are started all the same."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from colane.agent import main
from colane.agent.gate.audit import UNCHECKED
from colane.agent.measuring.device_memory import ESTIMATED
from colane.devices import NvmlDevices, gpu
from colane.devices.host import read_host
from colane.devices.nvml import Nvml
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

pytestmark = [pytest.mark.live]


@pytest.mark.parametrize("is_comparable", [True, False], ids=["old driver", "container"])
async def test_that_memory_is_estimated_is_said_once(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch, is_comparable: bool
) -> None:
    device = FakeGpu("GPU-0", total_bytes=10 * GB, reserved_bytes=0)
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: is_comparable)
    monkeypatch.setattr(main, "discover", lambda *_, **__: NvmlDevices(Nvml(FakeNvml([device])), read_host()))
    name, _, value = marker.partition("=")
    fake, command = FakeScheduler(), (sys.executable, "-c", "import time; time.sleep(1000)")
    wish: dict[str, Any] = {"env": {"PATH": os.environ["PATH"], name: value}, "turn": {"memory": [2 * GB, 2 * GB]}}
    fake.want(1, *command, **wish)
    of_turns = [] if is_comparable else [UNCHECKED]
    async with running(tmp_path / "state", fake) as agent:
        first = await agent.until(lambda: fake.launched(1))
        device.processes[int(first["pid"])] = None
        await agent.until(lambda: fake.reports[-1]["messages"] == [ESTIMATED], "it is said")
        fake.want(2, *command, **wish)
        await agent.until(lambda: fake.launched(2))
        await agent.until(lambda: fake.reports[-1]["messages"] == [ESTIMATED, *of_turns], "and nothing twice")
        for job in (1, 2):
            fake.end(job)
        await agent.until(lambda: {(1, 1), (2, 1)} <= fake.ends.keys())
    assert all(report["messages"].count(ESTIMATED) <= 1 for report in fake.reports)
