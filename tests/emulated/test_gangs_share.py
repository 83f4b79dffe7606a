"""Gangs in turns on emulated GPUs with each other and with jobs of one GPU: what one does never holds the others up."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from colane.agent.gate.page import ControlPage, pages_of
from tests.agent.agents import running
from tests.agent.lane import QUIET, Lane
from tests.agent.test_gate_scripts import TORCHRUN
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml
from tests.emulated.test_turns import all_wait

pytestmark = [pytest.mark.live]
STEPS = 200
ENDLESS = 100_000
CAME = 3
"""The gang that enters while the others run."""


@pytest.mark.parametrize("there", ["gang", "singles"])
@pytest.mark.parametrize("event", ["dies", "stop"])
async def test_a_gang_enters_and_goes_and_the_others_end_as_without_it(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, event: str
) -> None:
    machine = Machine(tmp_path / "gpus", Kind("GPU-0"), Kind("GPU-1"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env | QUIET
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.05}

    def ranks(job: int) -> list[int]:
        """A job's processes, by rank, that have made steps enough for several turns."""
        steps_path = tmp_path / "state" / "jobs" / f"{job}-1" / "own" / "steps"
        pages = [ControlPage(path).counters() for path in pages_of(steps_path).values()] if steps_path.exists() else []
        return [page.pid for page in pages if page.steps > 20]

    waits = {"paused": True}
    others = {1: (0, 1)} if there == "gang" else {1: (0,), 2: (1,)}
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, gpus in others.items():
            start = (*TORCHRUN, LOOPS, "ranks_in_flight") if len(gpus) > 1 else (LOOPS, "plain")
            lane.fake.want(job, sys.executable, *start, str(STEPS), "1", env=env, gpus=gpus, turn=waits)
        command = (*TORCHRUN, LOOPS, "ranks_in_flight", str(ENDLESS), "1")
        lane.fake.want(CAME, sys.executable, *command, env=env, gpus=(0, 1), turn=waits)
        await all_wait(agent, machine, {CAME: 2, **{job: len(gpus) for job, gpus in others.items()}})
        lane.fake.resume(*others)
        lane.fake.resume(CAME)
        begun = {CAME: 2} | {job: len(gpus) for job, gpus in others.items()}
        await agent.until(lambda: all(len(ranks(job)) == many for job, many in begun.items()), "all run", START_S)
        if event == "dies":
            os.kill(ranks(CAME)[1], signal.SIGKILL)
        else:
            lane.fake.end(CAME)
        await agent.until(lambda: len(lane.fake.ends) == 1 + len(others), "all end", START_S)
    for job in others:
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, STEPS)
    assert lane.fake.ends[CAME, 1]["exit_code"] != 0
    came = {ran.kernels[0].gpu: ran for ran in machine.all_ran(CAME) if ran.kernels}
    for job in others:
        for ran in machine.all_ran(job):
            if ran.kernels:
                gang = came[ran.kernels[0].gpu]
                assert gang.turns(), "it gave way"
                assert late_kernels(ran, [gang]) == []
