"""A training job for `turns.py`: notes when each step began and when it had ended on the device. Run as a script.

Arguments: file for the notes, and `large` or `small`.
"""

from __future__ import annotations

import os
import sys
import time

import torch

import colane.adaptor as colane

SIZES = {"large": (4096, 4096, 6), "small": (64, 16, 2)}
"""Width, batch and layers: a step of some milliseconds on a large GPU."""


def train(path: str, size: str) -> None:
    """Train for ever."""
    width, batch, layers = SIZES[size]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(batch, width, device=device)
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps = colane.attach()
    done = 0
    while True:
        began_s = time.monotonic()
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        done += 1
        os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        steps.step()


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
