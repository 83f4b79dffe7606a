"""`colane why` of a gang that hangs: which of its ranks waits where."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.waiting import until
from tests.cli.conftest import Colane, Gate, Up
from tests.needs import needs, two_cores

needs("torch", "the ranks meet by PyTorch")
pytestmark = [pytest.mark.live, pytest.mark.timeout(300), two_cores]

LONG_S = 240.0
JOB = """
import sys
import torch
import torch.distributed as dist
import colane.adaptor as colane

def load_batch():
    open(sys.argv[1]).read()  # a pipe that is not open yet

def step(number):
    if number == 20 and dist.get_rank() == 1:
        load_batch()
    dist.all_reduce(torch.ones(1))

torch.set_num_threads(1)
dist.init_process_group("gloo")
steps = colane.attach()
for number in range(25):
    step(number)
    steps.step()
dist.destroy_process_group()
"""


def test_ranks_of_a_hung_gang_tell_where_they_wait(
    live: Colane, shared_up: Up, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    script = tmp_path / "train.py"
    script.write_text(JOB)
    words = ("--gpus", "2", "--ranks", "per-gpu", "--", sys.executable, str(script), str(gate.path))
    job = live("submit", *words).out.split()[-1]
    said = "rank 0 waits in all_reduce (train.py:13), rank 1 is in load_batch (train.py:8)"
    until(lambda: f"\n  {said}\n" in live("why", job).out, "it is told of, unasked", LONG_S)
    at = f', line 13, in step\n  File "{script}", line 19, in <module>\n'

    def shown() -> str:
        out = live("why", job, "--stacks").out
        return out if at in out else ""

    told = until(shown, "its stacks are shown", LONG_S)
    for rank in (0, 1):
        assert f"\nrank {rank}, process " in told

    def whole() -> Any:
        found = live("why", job, "--json").json["stacks"]
        return found if found is not None and found["sentences"] == [said] else None

    processes = until(whole, "they are in its JSON", LONG_S)["processes"]
    assert [(one["rank"], one["node"], one["text"]) for one in processes] == [(0, "here", ""), (1, "here", "")]
    gate.open()
    assert shared_up.wait_for(int(job), "succeeded", "failed")["state"] == "succeeded", live("logs", job).out
    assert live("why", job, "--stacks").err == f"colane: job {job} has succeeded: only a job that runs has stacks\n"


def test_a_job_without_the_adaptor_says_so(live: Colane, shared_up: Up, gate: Gate) -> None:
    job = live("submit", "--gpus", "0", "--", "cat", str(gate.path)).out.split()[-1]
    said = "\n  no process of it on here can be asked: none has made a step or joined a group with Colane"
    until(lambda: said in live("why", job, "--stacks").out, "its agent has started it")
    gate.open()
    shared_up.wait_for(int(job), "succeeded")
