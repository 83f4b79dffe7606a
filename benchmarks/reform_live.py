"""What shrinking without a restart takes, from the decision to the first step of fewer ranks, beside a restart.

    python benchmarks/reform_live.py [--rounds 3]

A data-parallel job of PyTorch (gloo, `--ranks per-gpu`, `steps.reforms`) trains on two cpu devices; a newcomer makes it
shrink, which it does inside its processes, and when that has ended it grows again, by a restart: both through the real
scheduler and agent, by policy `f-sched`, in the same run. Of each shrinking is told when rank 0 makes its first step
alone, and when the device given up is free: when the scheduler has been told that the other rank is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from colane.api.jobs import StoryLineObject

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reallocate import POLICY, until

from colane.client.client import Client
from colane.engines.local import LocalConfig, LocalEngine

JOB = """
import os, sys, time
import torch
import torch.distributed as dist
import colane.adaptor as colane
notes, enough, saved = sys.argv[1:4]
torch.set_num_threads(1)
dist.init_process_group("gloo")
bare = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.Adam(bare.parameters())

def rebuild():
    global rank, world, model, fresh
    rank, world, fresh = dist.get_rank(), dist.get_world_size(), True
    model = torch.nn.parallel.DistributedDataParallel(bare)

def load():
    if not os.path.exists(saved):
        return None
    found = torch.load(saved)
    bare.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    return found["steps"]

def write(number):
    if rank == 0:
        with open(saved + ".new", "wb") as file:
            torch.save({"steps": number, "model": bare.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(saved + ".new", saved)
    dist.barrier()

rebuild()
steps = colane.attach()
steps.restore(load)
steps.reforms(rebuild)
while True:
    over = torch.tensor([int(os.path.exists(enough))])
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if over.item():
        os._exit(0)
    optimizer.zero_grad()
    model(torch.randn(32, 256)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02 / world**2)
    steps.step()
    if rank == 0 and (fresh or steps.steps_done % 10 == 0):
        with open(notes, "a") as lines:
            lines.write(f"{steps.steps_done} {world} {int(fresh)} {time.time()}\\n")
    fresh = False
    steps.save(write)
"""


class FirstStep(NamedTuple):
    """The first step of a group."""

    world: int
    at_s: float


class Trainer:
    """A data-parallel job of one or two ranks."""

    def __init__(self, client: Client, folder: Path, name: str) -> None:
        self._client, self._notes, self._enough = client, folder / f"notes-{name}", folder / f"enough-{name}"
        words = [sys.executable, "-c", JOB, *map(str, (self._notes, self._enough, folder / f"saved-{name}"))]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        body = {"command": words, "workdir": "/", "family": "net", "gpus": "1..2", "checkpoint": "plain"}
        self.id = client.submit({**body, "ranks": "per-gpu", "env": env})

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self._notes.read_text().split("\n")[:-1]] if self._notes.exists() else []

    def first_steps(self) -> list[FirstStep]:
        """Of each group that was formed."""
        return [FirstStep(int(world), float(at_s)) for _, world, fresh, at_s in self._lines() if fresh == "1"]

    def trains_on(self, devices: int) -> Callable[[], bool]:
        """Whether it makes steps with so many."""

        def look() -> bool:
            lines = self._lines()
            gpus: list[Any] = self._client.job(self.id)["gpus"]
            return len(gpus) == devices and bool(lines) and lines[-1][1:3] == [str(devices), "0"]

        return look

    def end(self) -> None:
        """Let it end well."""
        self._enough.touch()
        until(lambda: self._client.job(self.id)["state"] == "succeeded")


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds from each decision: to the first step of fewer, until the device is free, to the first step of more."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = LocalConfig.of(folder / "state", "here", policy=POLICY, devices="cpu:2:1GB")
        with LocalEngine(config) as stack, stack.client() as client:
            trainer = Trainer(client, folder, "elastic")
            until(trainer.trains_on(2))
            for number in range(rounds):
                newcomer = Trainer(client, folder, f"newcomer-{number}")
                until(newcomer.trains_on(1))
                until(trainer.trains_on(1))
                newcomer.end()
                until(trainer.trains_on(2))
            trainer.end()
            return _found(client.job(trainer.id)["story"], trainer.first_steps())


def _found(story: list[StoryLineObject], firsts: list[FirstStep]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"fewer": [], "free": [], "more": []}
    for change in story:
        if change["state"] == "checkpointing":
            after = next(first for first in firsts if first.at_s > change["at_s"])
            found["fewer" if after.world == 1 else "more"].append(after.at_s - change["at_s"])
            freed_s = next((line["at_s"] for line in story if line["at_s"] > change["at_s"]), 0.0)
            found["free"] += [freed_s - change["at_s"]] if after.world == 1 else []
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What shrinking without a restart takes, beside a restart.")
    parser.add_argument("--rounds", type=int, default=3)
    found = measure(parser.parse_args().rounds)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seconds from the decision, median and longest")
    words = {"fewer": "first step of one rank", "free": "its device is free", "more": "first step of two, restarted"}
    for name, values in found.items():
        print(f"  {words[name]:30} {median(values):.3f} {max(values):.3f} of {len(values)}")
    print(f"  a shrinking takes {median(found['fewer']) / median(found['more']):.3f} of a restart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
