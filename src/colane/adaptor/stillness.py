"""Watches whether this process stands still, while the agent keeps its GPU memory on the host.

Whatever the process calls of a device then waits in the driver, and nothing tells that from a long wait for data. So
its threads are looked at before and after: one that is still where it was, wherever that is, has called nothing, and
one that has moved may have. What has moved without need for its device is brought back for nothing, and goes on.

Where a thread is, Python says, and of calls in C the kernel: the stack pointer and the program counter with which it
waits. These are the same again where a loop looks for something now and then. One that computes may be seen at one
place twice, so what it has run counts, too. Threads without Python are not looked at: the driver has some that act
while it moves memory.
"""

# ruff: noqa: PTH123 - pathlib is an import the job did not ask for

from __future__ import annotations

import _thread
import os
import sys
import threading
import time

from . import own_threads
from .aside import debug
from .writer import HOLD, MOVED, WATCH, Writer

QUESTION = b"watchstandsstill"  # asks the process to begin, where another question asks for its stacks

EVERY_S = 0.2
STILL_S = 1.0  # so long it must have stood still before that is said
BUSY_RATIO = 0.05  # a thread that has run for more of the time between two looks computes
MOVED_LOOKS = 2
"""In so many looks one after the other a thread is elsewhere that has moved: a loop may be seen on its way round."""

_writer: Writer | None = None
_watching = 0  # the process that watches: a forked child is another


def offer(writer: Writer) -> bool:
    """Be ready to watch for the process of this writer; whether the kernel says where threads are."""
    global _writer  # noqa: PLW0603  # one for each process
    _writer = writer
    return bool(_place(os.getpid()))


def begin() -> None:
    """Watch in a thread of its own until the agent has had enough; once, however often it is called."""
    global _watching  # noqa: PLW0603
    if _writer is not None and _watching != os.getpid():
        _watching = os.getpid()
        own_threads.start(_watch_safely, _writer)


def _watch_safely(writer: Writer) -> None:
    global _watching  # noqa: PLW0603
    try:
        _watch(writer)
    except Exception as error:  # noqa: BLE001  # the job must run without us
        debug(f"it is not watched whether the process stands still: {error!r}")
    finally:
        writer.set_still(0)
        _watching = 0


def _watch(writer: Writer) -> None:
    """Say with each look whether all threads are where they were; what moves while it is held has moved for good."""
    control = writer.control
    before, since_s, looks, is_gone = look(), time.monotonic(), 0, False
    last = before
    writer.set_still(MOVED)
    while control[WATCH]:
        time.sleep(EVERY_S)
        now, now_s = look(), time.monotonic()
        looks = looks + 1 if now.places != before.places or computes(last, now) else 0
        last = now
        is_gone = bool(control[HOLD]) and (is_gone or looks >= MOVED_LOOKS)
        if looks >= MOVED_LOOKS:
            writer.set_still(MOVED)
            before, since_s, looks = now, now_s, 0
        elif not (looks or is_gone) and now_s >= since_s + STILL_S:
            writer.set_still(time.monotonic_ns())


class ThreadsSeen:
    """What is seen of the Python threads but the own one, by their identity.

    Attributes:
        at_s: When.
        places: Where each is.
        ran_ns: How long each has run so far, of those of which the kernel says it.
    """

    __slots__ = ("at_s", "places", "ran_ns")

    def __init__(self) -> None:
        self.at_s = time.monotonic()
        self.places: dict[int, object] = {}
        self.ran_ns: dict[int, int] = {}


def look() -> ThreadsSeen:
    """Look where the threads of this process are."""
    own, found = _thread.get_ident(), ThreadsSeen()
    numbers = {one.ident: one.native_id for one in list(threading._active.values())}  # type: ignore[attr-defined]  # noqa: SLF001
    for ident, frame in sys._current_frames().items():  # noqa: SLF001
        if ident != own:
            number = numbers.get(ident)
            found.places[ident] = (id(frame.f_code), frame.f_lasti, number and _place(number))
            if number:
                found.ran_ns[ident] = int((_said_of(number, "schedstat") or ["0"])[0])  # 0: the kernel does not say
    return found


def computes(last: ThreadsSeen, now: ThreadsSeen) -> bool:
    """Whether any thread has run for much of the time between two looks."""
    much_ns = BUSY_RATIO * (now.at_s - last.at_s) * 1e9
    return any(ran_ns - last.ran_ns.get(ident, ran_ns) > much_ns for ident, ran_ns in now.ran_ns.items())


def _place(thread: int) -> str:
    """Where a thread of this process waits, `running` while it does not; empty where the kernel does not say."""
    return " ".join(_said_of(thread, "syscall")[-2:])


def _said_of(thread: int, what: str) -> list[str]:
    try:
        with open("/proc/self/task/%d/%s" % (thread, what)) as file:  # noqa: UP031
            return file.read().split()
    except OSError:
        return []
