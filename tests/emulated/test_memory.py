"""What is told of a job's GPU memory is what the GPU holds of it, contexts included."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]
MIB = 2**20
START_S = 120.0


KINDS = ("nothing", "pool", "fragments", "libraries", "workspaces", "late")
"""What stays with a job that waits beside what it uses, each on a GPU of its own."""


async def test_what_is_booked_of_a_job_that_runs_alone_is_what_its_gpu_holds_once_it_waits(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "gpus", *(Kind(f"GPU-{kind}") for kind in KINDS))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = dict(enumerate(KINDS, start=1))
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, kind in jobs.items():
            command = (sys.executable, LOOPS, "holds_what_stays", "1000000", "2")
            env = lane.env | machine.env | {"HOLDS": kind}
            lane.fake.want(job, *command, env=env, gpus=(job - 1,), turn={"flush": True})
        await agent.until(lambda: all(lane.progress(job).get("steps", 0) > 150 for job in jobs), "all step", START_S)
        told = {kind: lane.progress(job) for job, kind in jobs.items()}
        for job in jobs:
            lane.fake.pause(job)
        await lane.is_in(agent, tuple(jobs), ("paused",))
        await agent.until(lambda: all(machine.at_boundaries(job) for job in jobs), "all wait", START_S)
        held = {kind: sum(machine.gpu(job - 1).held().values()) for job, kind in jobs.items()}
        later = {kind: lane.progress(job) for job, kind in jobs.items()}
        await lane.end(agent, tuple(jobs))
    for kind in KINDS:
        assert told[kind]["persistent_bytes"] == pytest.approx(held[kind], abs=4 * MIB), kind
        assert later[kind]["persistent_bytes"] == pytest.approx(held[kind], abs=4 * MIB), kind
        assert told[kind]["peak_bytes"] > held[kind] + 200 * MIB, kind
    assert held["nothing"] + 190 * MIB < min(size for kind, size in held.items() if kind != "nothing")


async def test_a_gpu_that_one_process_may_have_is_said_to_be_exclusive_and_a_second_job_is_refused(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", is_exclusive=True), Kind("GPU-1"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, gpu in ((1, 0), (3, 1), (4, 1)):
            lane.fake.want(job, sys.executable, LOOPS, "plain", "1000000", "2", env=lane.env | machine.env, gpus=(gpu,))
        await agent.until(lambda: all(lane.progress(job).get("steps", 0) for job in (1, 3, 4)), "they step", START_S)
        assert [gpu["sharing"] for gpu in lane.fake.reports[-1]["gpus"]] == ["exclusive", "time-slice"]
        assert lane.fake.is_told("GPUs 0 are in compute mode EXCLUSIVE_PROCESS")
        lane.fake.want(2, sys.executable, LOOPS, "plain", "5", "2", env=lane.env | machine.env)
        await agent.until(lambda: (2, 1) in lane.fake.ends, "the second ends", START_S)
        assert lane.fake.ends[2, 1]["outcome"] == "gpu-refused"
        await lane.end(agent, (1, 3, 4))


@pytest.mark.parametrize("shape", ["holds", "holds_without_statistics"])
async def test_what_is_told_is_what_the_gpu_holds(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", context_bytes=450 * MIB))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, LOOPS, shape, "1000000", "2", env=lane.env | machine.env)
        await agent.until(lambda: lane.progress(1).get("steps", 0) > 20, "it steps", START_S)
        (held_bytes,) = machine.gpu().held().values()
        told = lane.progress(1)
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")
        assert machine.gpu().held() == {}, "the driver has it back"
    assert told["memory_by"] == "nvml"
    assert held_bytes - 2 * MIB < told["persistent_bytes"] <= held_bytes, "but for what a block has left"
    assert told["peak_bytes"] - held_bytes <= 0
    assert told["overhead_bytes"] == (450 * MIB if shape == "holds" else None)
