"""A training job for `as_simulated.py` that only sleeps: its steps last what they are told on a busy machine, too.

Arguments: steps, seconds of a step.
"""

from __future__ import annotations

import sys
import time

import colane.adaptor as colane


def main(steps: int, step_s: float) -> None:
    """Step until done, each step at its own moment, so that a late step does not delay those after it."""
    cycle = colane.attach(steps)
    due_s = time.monotonic()
    for _ in range(steps):
        due_s += step_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        cycle.step()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
