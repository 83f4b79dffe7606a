"""A call that may take only so long, whatever it does.

The call runs in a thread of its own, so that waiting for it can end: a signal's timer would serve the main thread alone
and be lost beside another (pytest's, a user's), and both it and an asynchronous exception fail where code catches all
exceptions, sleeps in C or never returns to the interpreter. When its time is up the thread gets an asynchronous
exception; one that lives on even so is left behind as a daemon, and the caller goes on without it. What holds the
interpreter's lock in C for ever (`sum(range(10**18))`) cannot be bounded within one process.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, Generic, TypeVar

Answer = TypeVar("Answer")

INTERRUPTS_MAX: Final = 3
GRACE_S: Final = 0.1
"""So often an overdue call is interrupted, and so long each time is waited for its end."""


class _InterruptedError(BaseException):
    """Thrown into an overdue call; not an `Exception`, so that a usual `except` lets it through."""


class OverdueError(Exception):
    """A call has not ended in time.

    Attributes:
        frame: The innermost frame it was in when its time was up, if it was in one.
        left: The thread it still runs in, where it could not be interrupted.
    """

    def __init__(self, frame: FrameType | None, left: threading.Thread | None) -> None:
        super().__init__("has not ended in time")
        self.frame = frame
        self.left = left


class _Call(threading.Thread, Generic[Answer]):
    """One call and what came of it."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        super().__init__(name="colane-policy", daemon=True)
        self._call = call
        self.answers: list[Answer] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.answers.append(self._call())
        except BaseException as error:  # noqa: BLE001 - handed to the waiting thread
            self.error = error


def within(budget_s: float, call: Callable[[], Answer]) -> Answer:
    """Return what a call returns, or raise what it raises.

    Args:
        budget_s: Time it may take.
        call: Runs in another thread while this one waits.

    Raises:
        OverdueError: It has not ended in time.
    """
    one = _Call(call)
    one.start()
    one.join(budget_s)
    if one.is_alive():
        frame = sys._current_frames().get(one.ident or 0)  # noqa: SLF001 - public, for debuggers
        raise OverdueError(frame, _interrupted(one))
    if one.error is not None:
        raise one.error
    return one.answers[0]


def _interrupted(thread: threading.Thread) -> threading.Thread | None:
    """End a thread's call; the thread, where it does not end."""
    for _ in range(INTERRUPTS_MAX):
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_InterruptedError))
        thread.join(GRACE_S)
        if not thread.is_alive():
            return None
    return thread
