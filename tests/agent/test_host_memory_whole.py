"""To the host and back with the real scheduler and the real agent; the driver alone is a double."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from colane.agent import main
from colane.agent.running import host_memory
from colane.devices import CpuDevices, MemoryUse, OwnProcesses, discover, suspend
from colane.devices.suspend import ProcessState
from colane.devices.types import HostFacts
from colane.model.hardware import Gpu
from tests.agent.agents import Running, running
from tests.agent.waiting import DEADLINE_S
from tests.devices.fake_cuda import FakeCuda
from tests.server.harness import World, world

pytestmark = [pytest.mark.live]

JOB = str(Path(__file__).with_name("turn_job.py"))
GB = 10**9


@dataclass
class Machine:
    """One GPU with a driver; a process uses it from the moment a test says so."""

    devices: CpuDevices
    cuda: FakeCuda = field(default_factory=FakeCuda)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.devices, name)

    @property
    def host(self) -> HostFacts:
        """It has room for what is on the GPU, however small the machine that plays it."""
        return replace(self.devices.host, memory_bytes=500 * GB)

    def observe(self, own: OwnProcesses | None = None) -> tuple[Gpu, ...]:  # noqa: ARG002 - the Protocol's
        facts = {"type": "H200", "uuid": "GPU-0", "sharing": "time-slice", "memory_bytes": 140 * GB}
        return tuple(replace(gpu, **facts) for gpu in self.devices.observe())  # type: ignore[arg-type]

    def memory(self, _index: int) -> MemoryUse:
        held = {pid: 30 * GB for pid, state in self.cuda.states.items() if state is ProcessState.RUNNING}
        return MemoryUse(140 * GB - sum(held.values()), held)


class Link:
    """What the agent asks of the scheduler, without a network."""

    def __init__(self, w: World) -> None:
        self._w = w

    async def register(self, node: Any) -> Any:
        return await self._w.good("POST", "/node", node)

    async def report(self, name: str, report: Any) -> Any:
        return await self._w.good("POST", f"/node/{name}/report", report)

    async def launch_info(self, job_id: int) -> Any:
        return await self._w.good("GET", f"/job/{job_id}/launch")

    async def finished(self, finished: Any) -> Any:
        return await self._w.good("POST", "/finished_job", finished)

    async def finished_together(self, ends: Any) -> Any:
        return await self._w.good("POST", "/finished_jobs", list(ends))


async def until(agent: Running, look: Callable[[], Awaitable[Any]], what: str) -> None:
    """Ask until the answer is yes, while the agent goes on."""
    until_s = time.monotonic() + DEADLINE_S
    while not await look():
        assert time.monotonic() < until_s, f"waited in vain: {what}"
        await asyncio.wait({agent.task}, timeout=0.01)


async def test_another_job_has_the_gpu_meanwhile(tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = discover("cpu:1:1GB")
    assert isinstance(found, CpuDevices)
    machine = Machine(found)
    monkeypatch.setattr(main, "discover", lambda *_, **__: machine)
    monkeypatch.setattr(suspend, "problem", lambda: "")
    monkeypatch.setattr(host_memory.Mover.__init__, "__defaults__", (machine.cuda.suspender, lambda: 500 * GB))
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}

    def steps(job: int) -> int:
        notes = tmp_path / f"notes-{job}"
        lines = notes.read_bytes().split(b"\n")[:-1] if notes.exists() else []
        assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1)), "a step is done twice"
        return len(lines)

    async with world() as w, running(tmp_path / "state", Link(w)) as agent:  # type: ignore[arg-type]

        async def submit(number: int) -> None:
            command = [sys.executable, JOB, str(tmp_path / f"notes-{number}"), "0.002", "0"]
            assert await w.submit(command=command, env=env, workdir="/") == number

        async def shows(job: int, **wanted: Any) -> Any:
            shown = await w.good("GET", f"/job/{job}")
            return shown if all(shown[key] == value for key, value in wanted.items()) else None

        await submit(1)
        await until(agent, lambda: shows(1, state="running"), "job 1 runs")
        story = (await w.good("GET", "/job/1"))["story"]
        pid = int(next(line for line in story if line["why"] == "launched")["facts"]["pid"])
        machine.cuda.states[pid] = ProcessState.RUNNING
        await submit(2)
        assert (await w.good("GET", "/job/2"))["state"] == "queued"
        await w.good("POST", "/job/1/suspend", {"to_host": True})
        await until(agent, lambda: shows(1, on_host_bytes=30 * GB), "its memory is on the host")
        assert machine.cuda.states[pid] is ProcessState.CHECKPOINTED
        await agent.until(lambda: steps(2) > 5, "job 2 has the GPU")
        parked = steps(1)
        await w.good("POST", "/job/1/resume", {})
        assert (await w.good("GET", "/job/1/why"))["why"] == "returning"
        await w.good("DELETE", "/job/2")
        await agent.until(lambda: steps(1) > parked + 5, "job 1 goes on")
        assert machine.cuda.calls == ["lock", "checkpoint", "restore", "unlock"]
        assert await shows(1, state="running", on_host_bytes=None)
        await w.good("DELETE", "/job/1")
        await until(agent, lambda: shows(1, state="cancelled"), "the end")
