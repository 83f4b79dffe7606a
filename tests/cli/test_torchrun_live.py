"""A data-parallel job of the user's own torchrun grows and shrinks while it trains: one model, each step once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.waiting import until
from tests.cli.conftest import Colane, Up
from tests.needs import needs, two_cores

needs("torch", "the job trains with PyTorch")
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(600),
    two_cores,
]

LONG_S = 240.0
TORCHRUN = 'exec "$0" -m torch.distributed.run --standalone --nproc-per-node "$NPROC_PER_NODE" "$@"'

JOB = """
import os, sys, time
import torch
import torch.distributed as dist
import colane.adaptor as colane

notes, enough, saved = sys.argv[1:4]
dist.init_process_group("gloo")
torch.manual_seed(1)
torch.set_num_threads(1)
rank, world = dist.get_rank(), dist.get_world_size()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def load():
    if not os.path.exists(saved):
        return None
    state = torch.load(saved)
    model.load_state_dict(state["model"])
    return state["steps"]

def write(steps):
    if rank == 0:
        torch.save({"model": model.state_dict(), "steps": steps}, saved + ".new")
        os.replace(saved + ".new", saved)
    dist.barrier()

steps = colane.attach()
done = steps.restore(load)
while True:
    over = torch.tensor([int(os.path.exists(enough))])
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if over.item():
        break
    batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(done), dtype=torch.float64)[rank::world]
    optimizer.zero_grad()
    loss = (model(batch) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.08 / world**2)
    done += 1
    if rank == 0:
        weight = model.module.weight.sum().item()
        with open(notes, "a") as lines:
            lines.write(f"{done} {world} {weight:.12f}\\n")
    steps.step()
    steps.save(write)
dist.destroy_process_group()
"""


def alone(steps: int) -> list[float]:
    """What the weights add up to after each step of a training that is not disturbed, on one device."""
    import torch  # noqa: PLC0415 - only where it is installed

    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1).double()
    optimizer, sums = torch.optim.SGD(model.parameters(), lr=0.1), list[float]()
    for step in range(steps):
        batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        optimizer.zero_grad()
        (model(batch) - 1).pow(2).mean().backward()
        optimizer.step()
        sums.append(model.weight.sum().item())
    return sums


def test_a_job_of_torchrun_shrinks_for_a_newcomer_grows_again_and_learns_the_same(
    make_up: Callable[..., Up], colane: Colane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:2:1GB", "--policy", "f-sched:rise_ratio_min=0,pays_back=no")
    for name, value in {**up.env, "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.py"
    script.write_text(JOB)

    def lines(job: int) -> list[str]:
        path = tmp_path / f"notes-{job}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def world(job: int) -> int:
        return int(lines(job)[-1].split()[1]) if lines(job) else 0

    def submit(job: int) -> None:
        words = [str(tmp_path / f"{what}-{job}") for what in ("notes", "enough", "saved")]
        options = ("--gpus", "1..2", "--checkpoint", "torchrun", "--family", "net", "--retries", "1")
        said = colane("submit", *options, "--", "sh", "-c", TORCHRUN, sys.executable, str(script), *words)
        assert (said.code, said.out.split()[-1]) == (0, str(job)), said

    submit(1)
    until(lambda: len(lines(1)) > 30 and world(1) == 2, "job 1 trains on two devices", LONG_S)
    submit(2)
    until(lambda: world(2) == 1 and world(1) == 1, "each has one device", LONG_S)
    (tmp_path / "enough-2").touch()
    up.wait_for(2, "succeeded")
    until(lambda: world(1) == 2, "job 1 has both devices again", LONG_S)
    (tmp_path / "enough-1").touch()
    ended = up.wait_for(1, "succeeded", "failed")
    assert ended["state"] == "succeeded", colane("logs", "1").out[-3000:]
    for job in (1, 2):
        made = [line.split() for line in lines(job)]
        assert [int(step) for step, _, _ in made] == list(range(1, len(made) + 1)), "each step once"
        assert [float(weight) for _, _, weight in made] == pytest.approx(alone(len(made)), abs=1e-9)
    with up.client as client:
        assert {"shrunk", "grown"} <= {line["why"] for line in client.job(1)["story"]}
