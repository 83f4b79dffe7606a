"""A server for `serving.py`: answers requests that come at random times, and notes when each came and was answered.

Arguments: file for the notes, requests a second, how it says its answers (`request`, `step` or `plain`), seed.
"""

from __future__ import annotations

import os
import random
import sys
import time

import torch

import colane.adaptor as colane

torch.set_num_threads(1)


def main(path: str, rate: float, how: str, seed: int) -> None:
    """Serve until it is ended."""
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).eval()
    inputs, drawn = torch.randn(8, 512), random.Random(seed)  # noqa: S311 - when requests come
    steps = colane.attach() if how != "plain" else None
    with torch.no_grad():
        model(inputs)
        came_s = time.monotonic()
        while True:
            came_s += drawn.expovariate(rate)  # also while another is answered: then it waits
            time.sleep(max(0.0, came_s - time.monotonic()))
            if steps is not None and how == "request":
                with steps.request():
                    model(inputs)
                    done_s = time.monotonic()
            else:
                model(inputs)
                done_s = time.monotonic()
                if steps is not None:
                    steps.step()
            os.write(notes, b"%.6f %.6f\n" % (came_s, done_s))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
