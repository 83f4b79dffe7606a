"""A device that falls ill is told before the end of the job it took with it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colane.agent import main
from colane.devices import CpuDevices, OwnProcesses, discover
from colane.devices.types import NOTHING_OWN
from colane.model.hardware import Gpu
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live


LONG_S = 60.0
"""Nothing but the end of the job wakes the agent."""


class Recorder(FakeScheduler):
    """Remembers in which order it hears what."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    async def report(self, name: str, report: Any) -> Any:
        self.heard += ["ill" for gpu in report["gpus"] if not gpu["healthy"]]
        return await super().report(name, report)

    async def finished(self, finished: Any) -> Any:
        self.heard.append("end")
        return await super().finished(finished)


class Devices:
    """Cpu devices that can fall ill."""

    def __init__(self, devices: CpuDevices) -> None:
        self._devices = devices
        self.healthy = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._devices, name)

    def observe(self, own: OwnProcesses = NOTHING_OWN) -> tuple[Gpu, ...]:
        return tuple(replace(gpu, healthy=self.healthy) for gpu in self._devices.observe(own))


async def test_an_ill_device_is_told_before_the_end_of_its_job(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, found = Recorder(), discover("cpu:1:1GB")
    assert isinstance(found, CpuDevices)
    devices = Devices(found)
    monkeypatch.setattr(main, "discover", lambda *_, **__: devices)
    name, _, value = marker.partition("=")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    fake.want(7, "sh", "-c", f"cat {gate}; exit 1", env={"PATH": os.environ["PATH"], name: value})
    async with running(tmp_path / "state", fake, heartbeat_s=LONG_S) as agent:
        await agent.until(lambda: fake.launched(7))
        assert "ill" not in fake.heard
        devices.healthy = False
        gate.write_text("")
        await agent.until(lambda: fake.ends)
    assert fake.heard.index("ill") < fake.heard.index("end")
