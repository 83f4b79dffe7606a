"""Suspended jobs whose GPU memory is moved to the host: a real agent and real processes on a double of the driver."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from colane.agent import main
from colane.agent.files.jobdir import JobDir, read_json
from colane.agent.running import host_memory
from colane.devices import CpuDevices, MemoryUse, OwnProcesses, discover
from colane.devices.suspend import ProcessState
from colane.model.hardware import Gpu
from tests.agent.agents import Running, running
from tests.agent.fake_scheduler import FakeScheduler, Object
from tests.devices.fake_cuda import FakeCuda

pytestmark = [pytest.mark.live]

JOB = str(Path(__file__).with_name("turn_job.py"))
GB = 10**9
SIZE_BYTES = 30 * GB


@dataclass
class Machine:
    """A GPU of 140 GB with a driver, and a host."""

    devices: CpuDevices
    cuda: FakeCuda = field(default_factory=FakeCuda)
    strangers_bytes: int = 0
    host_bytes: int = 500 * GB
    other_pids: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.devices, name)

    def observe(self, own: OwnProcesses | None = None) -> tuple[Gpu, ...]:  # noqa: ARG002 - the Protocol's
        facts = {"type": "H200", "uuid": "GPU-0", "sharing": "time-slice", "memory_bytes": 140 * GB}
        return tuple(replace(gpu, **facts) for gpu in self.devices.observe())  # type: ignore[arg-type]

    def memory(self, _index: int) -> MemoryUse:
        """Running processes hold memory; those on the host do not."""
        held = {pid: SIZE_BYTES for pid, state in self.cuda.states.items() if state is ProcessState.RUNNING}
        held |= dict.fromkeys(self.other_pids, GB)
        return MemoryUse(140 * GB - sum(held.values()) - self.strangers_bytes, held)


class Bench:
    """A scheduler that wants one job, and the machine it runs on."""

    def __init__(self, machine: Machine, folder: Path, env: dict[str, str]) -> None:
        self.machine, self.folder, self.fake = machine, folder, FakeScheduler()
        self.notes = folder / "notes"
        self.fake.want(7, sys.executable, JOB, str(self.notes), "0.002", "0", env=env)

    @property
    def record(self) -> Path:
        return self.folder / "state" / "jobs" / "7-1" / host_memory.RECORD

    def supervisor(self) -> int:
        """Another process of the job."""
        claimed_by = JobDir(self.record.parent).claimed_by()
        assert claimed_by is not None
        return claimed_by.pid

    def steps(self) -> int:
        lines = self.notes.read_bytes().split(b"\n")[:-1] if self.notes.exists() else []
        assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1)), "a step is done twice"
        return len(lines)

    def progress(self) -> Object:
        seen = self.fake.launched(7) or {}
        return dict(seen.get("progress") or {})

    def state(self) -> ProcessState:
        (state,) = self.machine.cuda.states.values()
        return state

    async def started(self, agent: Running) -> int:
        """Wait until it steps; the process uses the GPU then."""
        await agent.until(lambda: self.steps() > 3 and self.progress().get("steps"), "it steps")
        pid = int((self.fake.launched(7) or {})["pid"])
        self.machine.cuda.states[pid] = ProcessState.RUNNING
        return pid

    async def moved(self, agent: Running) -> None:
        self.fake.pause(7, to_host=True)
        await agent.until(lambda: self.progress().get("on_host_bytes") == SIZE_BYTES, "its memory is on the host")
        assert self.state() is ProcessState.CHECKPOINTED

    async def goes_on(self, agent: Running) -> None:
        goal = self.steps() + 5
        await agent.until(lambda: self.steps() >= goal, "it goes on")
        await agent.until(lambda: self.state() is ProcessState.RUNNING and not self.record.exists(), "it is on its GPU")
        await agent.until(lambda: self.progress().get("on_host_bytes") is None, "its memory is not on the host")

    async def end(self, agent: Running) -> None:
        self.fake.end(7)
        await agent.until(lambda: (7, 1) in self.fake.ends, "the end")


@pytest.fixture
def bench(tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = discover("cpu:1:1GB")
    assert isinstance(found, CpuDevices)
    machine = Machine(found)
    monkeypatch.setattr(main, "discover", lambda *_, **__: machine)
    monkeypatch.setattr(
        host_memory.Mover.__init__, "__defaults__", (machine.cuda.suspender, lambda: machine.host_bytes)
    )
    name, _, value = marker.partition("=")
    return Bench(machine, tmp_path, {"PATH": os.environ["PATH"], name: value})


async def test_memory_goes_to_the_host_and_comes_back_when_there_is_room(bench: Bench, tmp_path: Path) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        pid = await bench.started(agent)
        await bench.moved(agent)
        assert read_json(bench.record) == {"pid": pid, "memory_bytes": SIZE_BYTES}
        done, reports = bench.steps(), len(bench.fake.reports)
        bench.machine.strangers_bytes = 115 * GB
        bench.fake.pause(7, paused=False)
        await agent.until(lambda: bench.fake.is_told("needs"))
        assert bench.fake.is_told("the GPU memory of job 7 stays on the host")
        assert len(bench.fake.reports) > reports
        assert (bench.steps(), bench.state(), bench.progress()["on_host_bytes"]) == (
            done,
            ProcessState.CHECKPOINTED,
            None,
        )
        assert "restore" not in bench.machine.cuda.calls
        bench.machine.strangers_bytes = 0
        await bench.goes_on(agent)
        await agent.until(lambda: bench.fake.reports[-1]["messages"] == [])
        await bench.end(agent)
    assert bench.machine.cuda.calls == ["lock", "checkpoint", "restore", "unlock", "lock", "checkpoint"]
    assert bench.state() is ProcessState.CHECKPOINTED, "killed as a restored process, it might hang the host"


@pytest.mark.parametrize("spoil", ["handler", "driver"])
async def test_a_restored_job_that_ends_by_itself_or_cannot_be_moved_is_ended_on_its_gpu(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        await bench.moved(agent)
        bench.fake.pause(7, paused=False)
        await bench.goes_on(agent)
        if spoil == "handler":
            monkeypatch.setattr(host_memory, "catches", lambda *_: True)
        else:
            bench.machine.cuda.refuses = "lock"
        await bench.end(agent)
    tried = ["lock"] if spoil == "driver" else []
    assert bench.machine.cuda.calls == ["lock", "checkpoint", "restore", "unlock", *tried]


async def test_how_fast_memory_moves_is_measured_and_told_by_the_next_agent_too(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parking is weighed by it: each move of 30 GB takes 10 s here."""
    ticks = itertools.count(0.0, 10.0)
    monkeypatch.setattr(host_memory, "monotonic", lambda: next(ticks))
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        assert "to_host_bytes_per_s" not in bench.fake.nodes["node-1"], "nothing was moved"
        await bench.moved(agent)
        await agent.until(lambda: bench.fake.nodes["node-1"].get("to_host_bytes_per_s") == 3e9, "it is told")
        times = bench.fake.registrations
        bench.fake.pause(7, paused=False)
        await bench.goes_on(agent)
        assert bench.fake.registrations == times, "as fast as is known"
    bench.fake.nodes.clear()
    async with running(tmp_path / "state", bench.fake) as agent:
        await agent.until(lambda: "node-1" in bench.fake.nodes, "it registers")
        assert bench.fake.nodes["node-1"]["to_host_bytes_per_s"] == 3e9
        await bench.end(agent)


async def test_the_next_agent_knows_what_is_on_the_host(bench: Bench, tmp_path: Path) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        await bench.moved(agent)
    bench.fake.pause(7, paused=False)
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.goes_on(agent)
        await bench.end(agent)


async def test_the_next_agent_ends_a_move_that_was_broken_off(bench: Bench, tmp_path: Path) -> None:
    """Its record was written and the process locked, no more."""
    async with running(tmp_path / "state", bench.fake) as agent:
        pid = await bench.started(agent)
    bench.machine.cuda.states[pid] = ProcessState.LOCKED
    bench.record.write_text(f'{{"pid": {pid}, "memory_bytes": {SIZE_BYTES}}}')
    async with running(tmp_path / "state", bench.fake) as agent:
        await agent.until(lambda: bench.state() is ProcessState.RUNNING)
        await bench.goes_on(agent)
        await bench.end(agent)


async def test_a_job_on_the_host_can_be_ended(bench: Bench, tmp_path: Path) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        await bench.moved(agent)
        await bench.end(agent)
    assert bench.fake.ends[7, 1]["outcome"] == "signalled"


async def test_one_resumed_at_once_goes_on_whatever_has_become_of_the_move(bench: Bench, tmp_path: Path) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        for _ in range(5):
            bench.fake.pause(7, to_host=True)
            await agent.until(lambda: bench.progress().get("turn") == "paused")
            bench.fake.pause(7, paused=False)
            await bench.goes_on(agent)
        await bench.end(agent)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("two", "2 processes of it use the GPU, and the driver moves only a single one to the host"),
        ("none", "no process of it uses the GPU, and the driver moves only a single one to the host"),
        ("host", "it needs 30 GB of host memory and 2.15 GB are kept free, 31 GB are free"),
        ("driver", "the driver refuses: cuCheckpointProcessCheckpoint gives CUDA_ERROR_NOT_SUPPORTED"),
    ],
)
async def test_what_cannot_be_moved_says_why_and_goes_on_when_resumed(
    bench: Bench, tmp_path: Path, spoil: str, says: str
) -> None:
    async with running(tmp_path / "state", bench.fake) as agent:
        pid = await bench.started(agent)
        machine = bench.machine
        if spoil == "two":
            machine.other_pids.append(bench.supervisor())
        elif spoil == "none":
            machine.cuda.states[os.getpid()] = machine.cuda.states.pop(pid)
        elif spoil == "host":
            machine.host_bytes = 31 * GB
        else:
            machine.cuda.refuses = "checkpoint"
        bench.fake.pause(7, to_host=True)
        await agent.until(lambda: bench.progress().get("host_refusal"), "the refusal")
        assert bench.progress()["host_refusal"] == says
        assert (bench.progress()["on_host_bytes"], bench.progress()["turn"]) == (None, "paused")
        bench.fake.pause(7, paused=False)
        await bench.goes_on(agent)
        await agent.until(lambda: bench.progress()["host_refusal"] == "")
        await bench.end(agent)


async def test_a_job_may_hold_on_the_host_what_it_booked_and_what_was_moved(bench: Bench, tmp_path: Path) -> None:
    """The driver's copy is memory of its process: under the old bound the job would end as out of memory."""
    booked_bytes = 3 * GB
    bench.fake.change(7, memory_limit_bytes=booked_bytes)
    job = JobDir(bench.record.parent)
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        await agent.until(lambda: job.memory_limit_bytes() == booked_bytes, "it is bounded")
        await bench.moved(agent)
        assert job.memory_limit_bytes() == booked_bytes + SIZE_BYTES
    async with running(tmp_path / "state", bench.fake) as agent:
        await agent.until(lambda: bench.progress().get("on_host_bytes") == SIZE_BYTES, "the next agent knows")
        assert job.memory_limit_bytes() == booked_bytes + SIZE_BYTES
        bench.fake.pause(7, paused=False)
        await bench.goes_on(agent)
        assert job.memory_limit_bytes() == booked_bytes
        await bench.end(agent)


async def test_a_refused_move_leaves_the_bound_as_it_was(bench: Bench, tmp_path: Path) -> None:
    bench.fake.change(7, memory_limit_bytes=3 * GB)
    bench.machine.cuda.refuses = "checkpoint"
    async with running(tmp_path / "state", bench.fake) as agent:
        await bench.started(agent)
        bench.fake.pause(7, to_host=True)
        await agent.until(lambda: bench.progress().get("host_refusal"), "it is refused")
        assert JobDir(bench.record.parent).memory_limit_bytes() == 3 * GB
        await bench.end(agent)
