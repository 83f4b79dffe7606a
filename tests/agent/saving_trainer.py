"""Trains without end, and takes its time to save: first what it was told, then `saved`, in a file for each rank.

    python saving_trainer.py FOLDER NAME SAVE_S [forks|spawns]

It leaves with 75 when it is asked by SIGUSR1, with 0 at SIGTERM. `forks` has a worker that inherits the handlers,
`spawns` starts two ranks by torch.multiprocessing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType


def train(folder: str, name: str, save_s: float) -> None:
    # Without buffers: a handler that writes while the line it answers is being written would fail.
    told = Path(folder, f"told-{name}").open("ab", buffering=0)  # noqa: SIM115 - it is written until the end

    def save(number: int, _frame: FrameType | None) -> None:
        told.write(f"{signal.Signals(number).name}\n".encode())
        os.write(1, b"saving\n")
        until_s = time.monotonic() + save_s
        while (left_s := until_s - time.monotonic()) > 0:
            signal.sigtimedwait(set(), left_s)
        os.write(1, b"state is written\n")
        told.write(b"saved\n")
        sys.exit(75 if number == signal.SIGUSR1 else 0)

    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, save)
    if sys.argv[4:] == ["forks"] and os.fork() == 0:
        told.close()
        told = Path(folder, "told-worker").open("ab", buffering=0)  # noqa: SIM115
    told.write(b"ready\n")
    while True:
        threading.Event().wait(1.0)


def rank(number: int, folder: str, save_s: float) -> None:
    train(folder, str(number), save_s)


if __name__ == "__main__":
    folder, name, save_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if sys.argv[4:] == ["spawns"]:
        import torch.multiprocessing

        torch.multiprocessing.spawn(rank, (folder, save_s), nprocs=2)
    else:
        train(folder, os.environ.get("RANK", name), save_s)
