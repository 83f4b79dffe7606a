"""Real data-parallel jobs on two cpu devices: started by us, and by torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.needs import needs, two_cores

needs("torch", "the jobs train with PyTorch")
pytestmark = [
    pytest.mark.live,
    two_cores,
]

NONE_CAME = "-1"
TORCHRUN = 'exec "$0" -m torch.distributed.run --nproc-per-node "$NPROC_PER_NODE" "$@"'
JOB = str(Path(__file__).with_name("ddp_job.py"))
LONG_S = 100


async def train(tmp_path: Path, mark: str, *command: str, **launch: Any) -> tuple[dict[str, Any], str]:
    fake = FakeScheduler()
    name, _, value = mark.partition("=")
    env = {"PATH": os.environ["PATH"], name: value, "GLOO_SOCKET_IFNAME": "lo"}
    fake.want(7, *command, gpus=(0, 1), env=env, **launch)
    async with running(tmp_path / "state", fake, devices="cpu:2:1GB") as agent:
        await agent.until(lambda: fake.ends, deadline_s=LONG_S)
        log = (await agent.get("/log/7/1")).text
    return fake.ends[7, 1], log


def weights(tmp_path: Path) -> list[str]:
    return [(tmp_path / f"rank-{rank}").read_text().split(" ", 2)[2] for rank in range(2)]


async def test_two_ranks_train_one_model(tmp_path: Path, marker: str) -> None:
    end, log = await train(tmp_path, marker, sys.executable, JOB, str(tmp_path), NONE_CAME, ranks="per-gpu")
    assert (end["outcome"], end["exit_code"]) == ("exited", 0), log
    assert [(tmp_path / f"rank-{rank}").read_text().split()[:2] for rank in range(2)] == [["2", "0"], ["2", "1"]]
    assert len(set(weights(tmp_path))) == 1, "gradients were averaged: both ranks hold the same model"


async def test_torchrun_works_untouched(tmp_path: Path, marker: str) -> None:
    command = ["sh", "-c", TORCHRUN, sys.executable, JOB, str(tmp_path), NONE_CAME]
    end, log = await train(tmp_path, marker, *command)
    assert (end["outcome"], end["exit_code"]) == ("exited", 0), log
    assert len(set(weights(tmp_path))) == 1


async def test_a_rank_that_fails_ends_the_job(tmp_path: Path, marker: str) -> None:
    end, log = await train(tmp_path, marker, sys.executable, JOB, str(tmp_path), "1", ranks="per-gpu")
    assert (end["outcome"], end["exit_code"]) == ("exited", 3), log
    assert "colane: rank 1 ended with exit code 3; the other ranks of the job are stopped" in log
