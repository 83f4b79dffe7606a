"""A data-parallel training job of a few steps, as users write them: it knows nothing of Colane."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import nn

STEPS = 5


def train(rank: int) -> list[object]:
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
    return [parameter.tolist() for parameter in model.parameters()]


def main(out: Path, fail_rank: int) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == fail_rank:
        end(3)
    if fail_rank in range(dist.get_world_size()):
        signal.pause()  # as in a collective operation that never comes to its end
    weights = train(rank)
    (out / f"rank-{rank}").write_text(f"{dist.get_world_size()} {os.environ['LOCAL_RANK']} {weights}")
    dist.barrier()
    dist.destroy_process_group()
    end(0)


def end(code: int) -> NoReturn:
    """At once: gloo's threads may abort a process that Python takes down (seen with torch 2.13, one run of four)."""
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
