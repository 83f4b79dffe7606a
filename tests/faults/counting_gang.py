"""Ranks that count together, with a collective for each number: the first one tells it."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[2])))
for number in range(1, 1000):
    total = torch.tensor([number])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        line = f"{os.environ['COLANE_ATTEMPT']} {int(total) // dist.get_world_size()}\n"
        with open(sys.argv[1], "a") as pipe:  # noqa: PTH123
            pipe.write(line)
    time.sleep(0.2)
