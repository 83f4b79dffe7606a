"""Threads of the adaptor's own, which the end of the process does not wait for, but for their beginning.

A thread that was started and has not begun when Python takes itself down uses what is freed by then, up to Python
3.11.5 (gh-108987): a job that ended right behind its first step crashed now and then.
"""

from __future__ import annotations

import _thread
import atexit
import os

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_beginnings: list[_thread.LockType] = []  # one for each thread, held until it has begun
_is_at_end = False


def start(work: Callable[..., None], *args: Any) -> None:
    """Call it in a thread of its own, unless the process is at its end.

    Raises RuntimeError: there can be no more threads.
    """
    beginning = _thread.allocate_lock()
    beginning.acquire()
    _beginnings.append(beginning)  # before the look at the end, which waits for all that are here
    if _is_at_end:
        beginning.release()
        return
    try:
        _thread.start_new_thread(_run, (beginning, work, args))
    except RuntimeError:
        beginning.release()
        raise


def _run(beginning: _thread.LockType, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    beginning.release()
    work(*args)


def _wait() -> None:
    """Let all begin that were started; none is from here on."""
    global _is_at_end  # noqa: PLW0603
    _is_at_end = True
    for beginning in _beginnings:
        beginning.acquire()


atexit.register(_wait)
os.register_at_fork(after_in_child=_beginnings.clear)  # a child has none of these threads
