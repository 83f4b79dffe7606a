"""What reporting a step costs: a loop with `steps.step(loss=...)` against the same loop without.

    python benchmarks/adaptor_step.py [--steps 200000]

Prints microseconds per step for three loops (bare, outside Colane, inside Colane) and their ratio to the bare one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import colane.adaptor as colane
from colane.adaptor import wire

ROUNDS = 7
"""The best of a few rounds is what the code costs; the rest is what else the machine did."""


def bare(count: int) -> float:
    """Return seconds for a loop that only has a loss."""
    start_s = time.perf_counter()
    for step in range(count):
        float(step)
    return time.perf_counter() - start_s


def reporting(count: int) -> float:
    """Return seconds for the same loop with a report of each step."""
    steps = colane.attach(total_steps=count)
    start_s = time.perf_counter()
    for step in range(count):
        steps.step(loss=float(step))
    return time.perf_counter() - start_s


def best(loop: Callable[[int], float], count: int) -> float:
    """Return the least microseconds per step of a few rounds."""
    return min(loop(count) for _ in range(ROUNDS)) / count * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    count = parser.parse_args().steps
    os.environ.pop(wire.STEPS_FILE_ENV, None)
    base, outside = best(bare, count), best(reporting, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "steps")
        wire.create(path)
        os.environ[wire.STEPS_FILE_ENV] = str(path)
        inside = best(reporting, count)
    for name, cost in (("bare loop", base), ("outside Colane", outside), ("inside Colane", inside)):
        print(f"{name:15} {cost:7.3f} us/step  {cost / base:6.1f} x")


if __name__ == "__main__":
    main()
