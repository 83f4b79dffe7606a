"""A job without GPUs that uses up memory bandwidth: each thread copies a block too large for any cache for ever.

As McCalpin's STREAM (copy) does. It is what the contention eliminator is for, and needs nothing but Python.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import threading
import time
from collections.abc import Sequence

from colane.workloads.progress import say

BLOCK_MB = 64
TOLD_EVERY_S = 5.0


def main(words: Sequence[str]) -> int:
    """Copy until the time is up or a signal ends it, and say how fast."""
    asked = _parsed(words)
    done = [0] * asked.threads
    deadline_s = time.monotonic() + asked.seconds
    words_of = (done, asked.megabytes << 20, deadline_s)
    threads = [threading.Thread(target=_copy, args=(i, *words_of), daemon=True) for i in range(asked.threads)]
    for thread in threads:
        thread.start()
    _tell(done, deadline_s)
    for thread in threads:
        thread.join()
    say(f"{sum(done) / 1e9:.1f} GB read and written in all")
    return 0


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m colane.workloads stream", description=__doc__)
    parser.add_argument("--threads", type=_positive, default=len(os.sched_getaffinity(0)), help="as many as cores")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="for so long; without it until it is stopped"
    )
    parser.add_argument("--megabytes", type=_positive, default=BLOCK_MB, help="of the block of each thread")
    return parser.parse_args(words)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, got {text!r}")
    return int(text)


def _copy(number: int, done: list[int], size_bytes: int, deadline_s: float) -> None:
    block = mmap.mmap(-1, 2 * size_bytes)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    ctypes.memset(start, 1, 2 * size_bytes)  # pages that were never written are all one page
    while not done[number] or time.monotonic() < deadline_s:
        ctypes.memmove(start, start + size_bytes, size_bytes)  # without the interpreter's lock
        done[number] += 2 * size_bytes


def _tell(done: list[int], deadline_s: float) -> None:
    began_s, before = time.monotonic(), 0
    while (left_s := deadline_s - time.monotonic()) > 0:
        time.sleep(min(TOLD_EVERY_S, left_s))
        now_s, total = time.monotonic(), sum(done)
        say(f"{(total - before) / (now_s - began_s) / 1e9:.1f} GB/s read and written")
        began_s, before = now_s, total
