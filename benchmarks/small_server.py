"""A server for `many_servers.py`: answers requests that come at random times, notes when each came and was answered.

Arguments: file for the notes, requests a second, seed. Imports as little as a script can.
"""

from __future__ import annotations

import os
import random
import sys
import time

import colane.adaptor as colane

WORK = 12_000
"""Numbers that are added for an answer."""


def main(path: str, rate: float, seed: int) -> None:
    """Serve until it is ended."""
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps, drawn = colane.attach(), random.Random(seed)  # noqa: S311 - when requests come
    came_s = time.monotonic()
    while True:
        came_s += drawn.expovariate(rate)  # also while another is answered: then it waits
        time.sleep(max(0.0, came_s - time.monotonic()))
        with steps.request():
            sum(range(WORK))
            done_s = time.monotonic()
        os.write(notes, b"%.6f %.6f\n" % (came_s, done_s))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
