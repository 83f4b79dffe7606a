"""Loops of many shapes take turns on emulated GPUs: steps take the device's time, and none runs in another's turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine, told_mean_s
from tests.emulated.nvml import EmulatedNvml
from tests.emulated.test_turns import all_wait

pytestmark = [pytest.mark.live]
STEPS = 30
KERNEL_MS = 3
FIRST = 5
"""In the first steps a compiler works, and optimizers of one iteration are told from several: some share an event."""
GROUPS = [
    ((0,), ("mixed_precision", "lbfgs", "gan", "several_streams")),
    ((0,), ("thread_beside", "thread_before", "pool_beside")),
    ((0, 1), ("data_parallel", "two_gpus")),
    ((0,), ("inductor", "side_thread", "copies_ahead")),
]


@pytest.mark.parametrize(("gpus", "shapes"), GROUPS, ids=["+".join(shapes) for _, shapes in GROUPS])
async def test_shapes_take_turns(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...], shapes: tuple[str, ...]
) -> None:
    machine = Machine(tmp_path / "gpus", *(Kind(f"GPU-{gpu}", run_ahead=20) for gpu in gpus))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.0}  # a step a turn: so many handovers on a busy machine, too
    jobs = dict(enumerate(shapes, start=1))
    bound_s = START_S  # a compiler may work for long between two boundaries
    async with running(tmp_path / "state", lane.fake, devices="gpu", yield_bound_s=bound_s) as agent:
        for job, shape in jobs.items():
            command = (LOOPS, shape, str(STEPS), str(KERNEL_MS))
            lane.fake.want(job, sys.executable, *command, env=env, gpus=gpus, turn={"paused": True})
        await all_wait(agent, machine, dict.fromkeys(jobs, 1))
        lane.fake.resume(*jobs)
        await agent.until(lambda: len(lane.fake.ends) == len(jobs), "all end", START_S)
        said = {job: (await agent.get(f"/log/{job}/1")).text for job in jobs}
    ran = {job: machine.ran(job) for job in jobs}
    for job, shape in jobs.items():
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, STEPS), (shape, said[job])
        each = int(said[job].split()[-1]) // (STEPS - 1)
        later = STEPS - FIRST
        truth_s = ran[job].mean_step_s(later, later * each)
        assert told_mean_s(end["step_durations_s"][FIRST - 1 :]) == pytest.approx(truth_s, rel=0.02), shape
        assert late_kernels(ran[job], [other for key, other in ran.items() if key != job]) == [], shape
    assert all(one.turns() for one in ran.values())
