"""What uses a device besides PyTorch's modules, in turns: steps are counted, and nothing runs in another's turn."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import OTHERS, Machine, told_mean_s
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]
CUPY, JAX = (str(Path(__file__).with_name(name)) for name in ("cupy_loop.py", "jax_loop.py"))
STEPS, KERNELS = 40, 4


async def test_what_is_no_pytorch_and_what_comes_before_a_module_runs_within_turns(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy alone and beside PyTorch, and kernels of the main thread before anything says that it trains."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=20))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: False)  # no job is kept for a check meanwhile
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env
    env["PYTHONPATH"] += f":{OTHERS}"
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.0}
    commands = {2: (CUPY,), 3: (LOOPS, "with_cupy"), 4: (LOOPS, "kernels_before_the_model")}
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, LOOPS, "plain", "1000000", "1", env=env)
        await agent.until(lambda: lane.progress(1).get("steps", 0) > 0, "it has made a step", START_S)
        for job, command in commands.items():
            lane.fake.want(job, sys.executable, *command, str(STEPS), "1", env=env)
        await agent.until(lambda: all((job, 1) in lane.fake.ends for job in commands), "the others end", START_S)
        lane.fake.pause(1)
        await lane.is_in(agent, (1,), ("paused",))
        await lane.end(agent, (1,))
    ran = {job: machine.ran(job) for job in (1, *commands)}
    for job, one in ran.items():
        others = [other for key, other in ran.items() if key != job]
        assert late_kernels(one, others) == [], commands.get(job)
        assert len(one.turns()) > 2, commands.get(job)
    for job, command in commands.items():
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, STEPS), command
    assert {kernel.label for kernel in ran[3].kernels} == {"cupy", "sleep"}
    for job, each in ((3, 3 * KERNELS), (4, 2 * KERNELS)):
        truth_s = ran[job].mean_step_s(STEPS - 1, (STEPS - 1) * each)
        told_s = told_mean_s(lane.fake.ends[job, 1]["step_durations_s"])
        assert told_s == pytest.approx(truth_s, rel=0.02), commands[job]


async def test_jax_runs_ahead_of_its_device_and_nothing_is_under_way_when_it_gives_a_turn_up(
    lane: Lane, tmp_path: Path
) -> None:
    """By its own asynchronous dispatch, on its CPU build."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed (pip install jax)")
    env = {**lane.env, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    count = 60
    async with running(tmp_path / "state", lane.fake) as agent:
        for job in (1, 2):
            lane.fake.want(job, sys.executable, JAX, str(lane.notes(job)), str(count), env=env, turn={"paused": True})
        await agent.until(lambda: all(b"yield" in _read(lane.notes(job)) for job in (1, 2)), "both wait", START_S)
        lane.fake.resume(1, 2)
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end", START_S)
    for job in (1, 2):
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, count)
        lines = [line.split() for line in _read(lane.notes(job)).splitlines()]
        assert max(int(late) for what, late in lines if what == b"asked") > 0, "it did run ahead"
        given_up = [int(late) for what, late in lines if what == b"yield"]
        assert len(given_up) > 2
        assert max(given_up) == 0


def _read(path: Path) -> bytes:
    return path.read_bytes() if os.path.exists(path) else b""  # noqa: PTH110 - asked again and again
