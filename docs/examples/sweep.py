"""A sweep of trials that share GPUs: `python sweep.py 200`, with a scheduler (`colane up`) that runs.

Each trial is a job that asks for one GPU and says how much of its memory it takes, so that it may start beside others
before any was measured. `at_once` is how many run at most.
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import as_completed

import colane.adaptor
from colane.client.futures import JobExecutor

STEPS = 40
NOISE = 0.1
STEP_S = 0.005
"""What a step of this stand-in for training waits for its data; it computes next to nothing."""


def train(rate: float) -> float:
    """Fit a line by gradient descent; return how far it is off."""
    seen, slope = random.Random(1), 0.0
    steps = colane.adaptor.attach(total_steps=STEPS)
    for _ in range(STEPS):
        x = seen.uniform(-1, 1)
        slope += rate * x * (3 * x + seen.gauss(0, NOISE) - slope * x)
        time.sleep(STEP_S)
        steps.step(loss=abs(3 - slope))
    return abs(3 - slope)


def main(trials: int) -> None:
    """Try rates, and name the best."""
    rates = [10 ** (-2 + 2 * trial / trials) for trial in range(trials)]
    start_s = time.monotonic()
    with JobExecutor(gpus=1, gpu_memory="100MB", name="trial", family="sweep-example") as jobs:
        runs = dict(zip(jobs.array(train, rates, at_once=8), rates, strict=True))
        results = {runs[run]: run.result() for run in as_completed(runs)}
    best = min(results, key=lambda rate: results[rate])
    print(f"best rate {best:.3g}, off by {results[best]:.3g}; {trials} trials in {time.monotonic() - start_s:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
