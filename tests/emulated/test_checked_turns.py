"""Turns are checked: what a job computes beside its loop waits with it, or the job leaves the turns with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from colane.adaptor.writer import CONTROL_OFFSET, SHARES
from colane.agent.gate.audit import UNCHECKED
from tests.adaptor.jobs import Job
from tests.agent.agents import Running, running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS, Loop
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml
from tests.emulated.test_turns import all_wait

pytestmark = [pytest.mark.live]
LEAKS = "computes in the turns of others"
STEPS = 400
"""Of 16 ms each: more than the seconds that a check keeps a job, in which the other has all turns."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=20))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(made.home))
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


async def begin(agent: Running, lane: Lane, machine: Machine, shape: str, steps: tuple[int, int]) -> None:
    env = lane.env | machine.env
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.1}
    for job, (name, count) in enumerate(zip((shape, "plain"), steps, strict=True), start=1):
        lane.fake.want(job, sys.executable, LOOPS, name, str(count), "2", env=env, turn={"paused": True})
    await all_wait(agent, machine, {1: 1, 2: 1})
    lane.fake.resume(1, 2)


@pytest.mark.parametrize("shape", ["actor_beside", "process_beside"])
async def test_threads_and_processes_that_call_models_wait_with_their_job(
    lane: Lane, tmp_path: Path, machine: Machine, shape: str
) -> None:
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await begin(agent, lane, machine, shape, (STEPS, STEPS))
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end", START_S)
    assert [lane.fake.ends[job, 1]["exit_code"] for job in (1, 2)] == [0, 0]
    assert not lane.fake.is_told(LEAKS)
    beside, other = machine.all_ran(1), machine.ran(2)
    acted = [kernel for ran in beside for kernel in ran.kernels]
    assert len(acted) > STEPS * 8 + 100, "it has acted"
    assert len(other.turns()) > 2
    for ran in beside:
        assert late_kernels(ran, [other]) == []


async def test_a_job_that_computes_while_it_waits_leaves_the_turns_with_a_reason(
    lane: Lane, tmp_path: Path, machine: Machine
) -> None:
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await begin(agent, lane, machine, "kernels_beside", (100000, 100000))
        await agent.until(lambda: lane.progress(1).get("turn") == "ungated", "it is found", START_S)
        assert lane.fake.is_told(f"job 1 {LEAKS}")
        since = lane.progress(1)["steps"], lane.progress(2)["steps"]
        await agent.until(lambda: lane.progress(1)["steps"] > since[0] + 100, "it goes on", START_S)
        await agent.until(lambda: lane.progress(2)["steps"] > since[1] + 100, "so does the other", START_S)
        assert lane.progress(1)["turn"] == "ungated", "for good"
        assert lane.progress(2)["turn"] in {"running", "waiting"}
        assert not lane.fake.is_told(f"job 2 {LEAKS}")
        assert not lane.fake.is_told(UNCHECKED)
        await lane.end(agent, (1, 2))


async def test_where_pids_are_of_another_namespace_it_is_said_that_turns_are_not_checked(
    lane: Lane, tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: False)
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await begin(agent, lane, machine, "plain", (100000, 100000))
        await agent.until(lambda: lane.fake.reports[-1]["messages"].count(UNCHECKED) == 1, "it is said", START_S)
        await lane.end(agent, (1, 2))
    assert all(report["messages"].count(UNCHECKED) <= 1 for report in lane.fake.reports)


@pytest.mark.parametrize("shares", [True, False])
def test_a_second_process_waits_for_what_it_launched_where_its_job_shares_a_lane(
    loop: Loop, job: Job, machine: Machine, *, shares: bool
) -> None:
    """The turn may be given up right behind its call, and what it launched would run in the next job's."""
    with job.steps_path.open("r+b") as page:
        page.seek(CONTROL_OFFSET + SHARES * 8)
        page.write(int(shares).to_bytes(8, sys.byteorder))
    loop("process_beside", "20", "0.05")
    waited = [ran.counts().get("synchronize", 0) for ran in machine.all_ran()]
    assert (max(waited) >= 50) is shares, "it has acted so often"
