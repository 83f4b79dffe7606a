"""A job for tests of turns: notes when each of its steps begins and ends. Run as a script.

Arguments: file for the notes, seconds of a step, number of steps (0 for no end), `spin` to compute meanwhile
instead of sleeping, and seconds of the first step.
"""

from __future__ import annotations

import os
import sys
import time

import colane.adaptor as colane


def spin(seconds: float) -> None:
    """Keep a core busy."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass


def main(path: str, step_s: float, total: int, how: str = "sleep", first_s: str = "") -> None:
    work = spin if how == "spin" else time.sleep
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps = colane.attach(total_steps=total or None)
    done = 0
    while not total or done < total:
        began_s = time.monotonic()
        work(float(first_s) if first_s and not done else step_s)
        done += 1
        os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        steps.step()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
