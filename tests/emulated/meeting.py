"""Where ranks meet, as torchrun has it outlive them: run as a program, which writes its port into a pipe and waits."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import torch


def main(told: str) -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    Path(told).write_text(str(store.port))
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
