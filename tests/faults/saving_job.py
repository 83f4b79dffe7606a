"""A job that saves its state and notes all it does: began PID STEPS, step N, saved N. Run as a script.

Arguments: directory of its notes, its id and attempt, steps to make, seconds a step takes. A second process of the same
job that steps at the same time notes `twice` and ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

import colane.adaptor as colane

SAVES_EVERY_S = 0.1


def main(directory: str, job: str, attempt: str, total: int, step_s: float) -> None:
    saved = os.path.join(directory, f"{job}.saved")  # noqa: PTH118 - a process starts sooner without pathlib

    def load() -> int | None:
        return int(open(saved).read()) if os.path.exists(saved) else None  # noqa: PTH110, PTH123

    def write(number: int) -> None:
        with open(saved + ".new", "w") as file:  # noqa: PTH123
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
        os.replace(saved + ".new", saved)  # noqa: PTH105
        notes.write(f"saved {number}\n")

    with (
        open(os.path.join(directory, f"{job}-{attempt}"), "a", buffering=1) as notes,  # noqa: PTH118, PTH123
        open(os.path.join(directory, f"{job}.lock"), "a") as lock,  # noqa: PTH118, PTH123
    ):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notes.write("twice\n")
            sys.exit(1)
        steps = colane.attach(total_steps=total)
        notes.write(f"began {os.getpid()} {steps.restore(load)}\n")
        while steps.steps_done < total:
            time.sleep(step_s)
            notes.write(f"step {steps.steps_done + 1}\n")
            steps.step()
            steps.save(write, every_s=SAVES_EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
