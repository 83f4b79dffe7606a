"""A job that trains, and then waits for a line of a pipe before it trains on, in one of several ways. Run as a program.

Arguments: the pipe, and the way: `reads` (within one call), `looks` (a loop that sleeps), `serves` (a thread trains,
the main one waits for its end).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from queue import Empty, Queue
from typing import Any

import torch

net = torch.nn.Linear(4, 1).to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept = torch.zeros(16 * 2**20).to("cuda")


def train(steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        torch.cuda._sleep(1_000_000)
        net(torch.randn(8, 4).to("cuda")).sum().backward()
        optimizer.step()


def reads(path: str) -> None:
    with open(path) as lines:  # noqa: PTH123
        for line in lines:
            train(int(line))


def looks(path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    while True:
        try:
            lines = os.read(file, 100)
        except BlockingIOError:
            time.sleep(0.05)
            continue
        train(int(lines.split()[-1]))


def serves(path: str) -> None:
    wanted: Queue[int] = Queue()

    def serve() -> None:
        while True:
            try:
                train(wanted.get(timeout=0.3))
            except Empty:
                continue

    threading.Thread(target=serve, daemon=True).start()
    with open(path) as lines:  # noqa: PTH123
        for line in lines:
            wanted.put(int(line))


WAYS: dict[str, Any] = {one.__name__: one for one in (reads, looks, serves)}

if __name__ == "__main__":
    train(20)
    WAYS[sys.argv[2]](sys.argv[1])
