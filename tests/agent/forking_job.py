"""A job that forks in the middle of its training, and whose child goes on to say steps. Run as a script.

Arguments: file for the notes of its steps, seconds of a step, steps before it forks.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import colane.adaptor as colane


def main(path: str, step_s: float, forks_after: int) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps, done = colane.attach(), 0
    while True:
        began_s = time.monotonic()
        time.sleep(step_s)
        done += 1
        os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        steps.step()
        if done == forks_after and os.fork() == 0:
            for _ in range(1000):
                steps.step()
            while True:
                signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
