"""A server on an emulated GPU that was asked for nothing yet: a job that comes has the turns it needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]

SERVER = str(Path(__file__).with_name("server.py"))
NEVER_S = 3600.0
ANSWERS = 5


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
