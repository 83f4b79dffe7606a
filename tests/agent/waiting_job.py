"""A job for tests of idle jobs: makes steps, as many each time as a line of a pipe says. Run as a script.

Arguments: file for the notes, the pipe.
"""

from __future__ import annotations

import os
import sys

import colane.adaptor as colane


def main(path: str, pipe: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps, done = colane.attach(), 0
    with open(pipe) as words:  # noqa: PTH123 - as little is imported as in a job
        for word in words:
            for _ in range(int(word)):
                done += 1
                os.write(notes, b"%d\n" % done)
                steps.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
