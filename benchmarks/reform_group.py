"""What it would take two living ranks to form their process group anew, beside starting a process (decision 21).

    python benchmarks/reform_group.py [--rounds 10] [--port 29400]

Two ranks of gloo train a small model. Over and over they destroy their group, form it at another port (as two, then the
first of them as one), broadcast model and optimizer, wrap the model by DDP and make a step: the seconds from the end of
a step to the end of the next one. A process that starts, makes one such step and ends is timed in the same run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reallocate import ONE_STEP

STARTS = 3


class Rank:
    """One of two processes."""

    def __init__(self, rank: int, port: int) -> None:
        self._rank, self._port = rank, port
        self._model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self._optimizer = torch.optim.Adam(self._model.parameters())

    def form(self, world: int) -> None:
        """A new group, and a step in it."""
        where, self._port = f"tcp://127.0.0.1:{self._port}", self._port + 1
        dist.init_process_group("gloo", init_method=where, rank=self._rank, world_size=world)
        for parameter in self._model.parameters():
            dist.broadcast(parameter.data, 0)
        for state in self._optimizer.state.values():
            for value in state.values():
                dist.broadcast(value, 0)
        whole = nn.parallel.DistributedDataParallel(self._model)
        self._optimizer.zero_grad()
        whole(torch.randn(32, 256)).square().mean().backward()
        self._optimizer.step()

    def reform(self, world: int) -> float:
        """Seconds that takes."""
        began_s = time.perf_counter()
        dist.destroy_process_group()
        self.form(world)
        return time.perf_counter() - began_s


def start_s() -> float:
    """Seconds a process with one step takes."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", ONE_STEP], check=True)
    return time.perf_counter() - began_s


def main() -> int:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description="What forming a process group anew takes.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--port", type=int, default=29400)
    args = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    other = os.fork()
    rank = Rank(0 if other else 1, args.port)
    rank.form(2)
    found = {"two": [rank.reform(2) for _ in range(args.rounds)]}
    if not other:
        dist.destroy_process_group()
        return 0
    found["one"] = [rank.reform(1) for _ in range(args.rounds)]
    os.waitpid(other, 0)
    bare_s = median([start_s() for _ in range(STARTS)])
    print(f"load {os.getloadavg()[0]:.1f}; a process with one step: {bare_s:.2f} s")
    for world, values in found.items():
        took_s = median(values)
        ratio, longest_s = took_s / bare_s, max(values)
        print(f"  as {world}: median {took_s * 1e3:.0f} ms, longest {longest_s * 1e3:.0f} ms; {ratio:.4f} of it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
