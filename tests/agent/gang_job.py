"""A job of two ranks that meet at every step. Run as a script.

Arguments: file for the notes of rank 0, seconds of a step.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import colane.adaptor as colane


def launch(path: str, step_s: str) -> int:
    ends = socket.socketpair()
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, path, step_s, str(end.fileno())],
            env={**os.environ, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
            pass_fds=[end.fileno()],
        )
        for rank, end in enumerate(ends)
    ]
    for end in ends:
        end.close()
    return max(rank.wait() for rank in ranks)


def train(path: str, step_s: float, fd: int) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    other = socket.socket(fileno=fd)
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    steps = colane.attach()
    done = 0
    while True:
        began_s = time.monotonic()
        time.sleep(step_s)
        other.sendall(b"x")
        if not other.recv(1):
            return
        done += 1
        if rank == 0:
            os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        steps.step()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        train(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(launch(sys.argv[1], sys.argv[2]))
