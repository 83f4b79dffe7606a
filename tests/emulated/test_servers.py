"""A server on an emulated GPU that was asked for nothing yet: a job that comes has the turns it needs."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.loops import KERNELS
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]

SERVER = str(Path(__file__).with_name("server.py"))
NEVER_S = 3600.0
ANSWERS = 5
STEP_KERNELS = 2 * KERNELS


async def test_a_job_steps_beside_a_loaded_model_that_was_asked_for_nothing(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model was loaded when it had the GPU to itself; its turn is never given up on here."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=20))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pipe, ready, answers = tmp_path / "pipe", tmp_path / "ready", tmp_path / "answers"
    os.mkfifo(pipe)
    asks = os.open(pipe, os.O_RDWR)
    env = lane.env | machine.env
    async with running(tmp_path / "state", lane.fake, devices="gpu", yield_bound_s=NEVER_S) as agent:
        command = (SERVER, str(pipe), str(ready), str(answers))
        lane.fake.want(1, sys.executable, *command, env=env, turn={"kind": "inference"})
        await agent.until(ready.exists, "it serves", START_S)
        lane.fake.want(2, sys.executable, LOOPS, "plain", "100000", "2", env=env)
        await agent.until(lambda: lane.progress(2).get("steps", 0) > 1, "the newcomer trains", START_S)
        os.write(asks, b"please\n" * ANSWERS)
        await agent.until(lambda: answers.exists() and answers.stat().st_size == ANSWERS, "all are answered", START_S)
        await lane.end(agent, (1, 2))
    os.close(asks)
    ran = {job: machine.ran(job) for job in (1, 2)}
    assert late_kernels(ran[1], [ran[2]]) == []
    assert late_kernels(ran[2], [ran[1]]) == []


STEP_MS = 50.0  # of the training beside it


async def test_an_answer_waits_for_no_more_than_a_step_of_training_in_its_lane(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training may launch 40 kernels ahead, five of its steps: of what it has launched no more than one is left.

    Judged by what the GPU had under way, so that it matters not how busy the host is.
    """
    machine = Machine(tmp_path / "gpus", Kind("GPU-0"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    pipe, ready, answers = tmp_path / "pipe", tmp_path / "ready", tmp_path / "answers"
    os.mkfifo(pipe)
    asks = os.open(pipe, os.O_RDWR)
    env = lane.env | machine.env
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        command = (SERVER, str(pipe), str(ready), str(answers))
        lane.fake.want(1, sys.executable, *command, env=env, turn={"kind": "inference"})
        lane.fake.want(2, sys.executable, LOOPS, "plain", "100000", str(STEP_MS / STEP_KERNELS), env=env)
        await agent.until(ready.exists, "it serves", START_S)
        await agent.until(lambda: lane.progress(2).get("steps", 0) > 1, "the other trains", START_S)
        for number in range(1, ANSWERS + 1):
            os.write(asks, b"please\n")
            await agent.until(partial(_holds, answers, number), "it answers", START_S)
            steps = lane.progress(2)["steps"] + 4
            await agent.until(partial(_is_past, lane, steps), "the other goes on", START_S)
        await lane.end(agent, (1, 2))
    os.close(asks)
    server, training = machine.ran(1), machine.ran(2)
    since_s = server.kernels[0].ended_s
    kernels = sorted(training.kernels, key=lambda kernel: kernel.launched_s)
    left = [
        sum(before.ended_s > kernel.launched_s for before in kernels[max(0, at - 3 * STEP_KERNELS) : at])
        for at, kernel in enumerate(kernels)
        if kernel.launched_s > since_s
    ]
    assert len(left) > ANSWERS * STEP_KERNELS
    assert max(left) < STEP_KERNELS, "the last step has ended before the next is launched"
    assert late_kernels(server, [training]) == late_kernels(training, [server]) == []


def _holds(path: Path, size_bytes: int) -> bool:
    return path.exists() and path.stat().st_size >= size_bytes


def _is_past(lane: Lane, steps: int) -> bool:
    return bool(lane.progress(2)["steps"] > steps)
