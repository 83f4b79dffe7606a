"""Questions that are answered by a copy of this process, so that what they change is gone with it.

A fork has all that this process has at that moment and costs no copying of its own: memory is shared until one of the
two writes to it. The copy holds none of our sockets, ends by itself, and is ended where it takes too long.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import resource
import select
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

Answer = TypeVar("Answer")

LIMIT_S: Final = 10.0  # a copy that has not answered by then is ended

AT_ONCE: Final = 2  # so many copies answer at once, others wait

_READ_BYTES: Final = 1 << 16
_FILES_MAX: Final = 1 << 20
_RESET: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class CopyError(Exception):
    """A copy has not answered: it took too long, or met a fault."""


class Copy(NamedTuple):
    """A copy at work, and where its answer comes."""

    pid: int
    answers: int


def begin(question: Callable[[], object]) -> Copy:
    """Copy this process; the copy answers a question, with what can be pickled, and ends.

    Raises CopyError: the system has no room for it.
    """
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise CopyError(f"this process cannot be copied: {error.strerror}") from error
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise CopyError(f"this process cannot be copied: {error.strerror}") from error
    if pid == 0:
        _answer(question, writing)
    os.close(writing)
    return Copy(pid, reading)


def _answer(question: Callable[[], object], writing: int) -> NoReturn:
    """In the copy: nothing of this process is touched, what waits to be written by it least of all."""
    try:
        _become_a_copy(writing)
        try:
            data = pickle.dumps((True, question()))
        except BaseException as error:  # noqa: BLE001 - told to the caller
            data = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _become_a_copy(writing: int) -> None:
    gc.disable()  # it would write to all there is, and so copy it
    with suppress(OSError):
        os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _RESET:
        signal.signal(number, signal.SIG_DFL)
    logging.disable()
    os.closerange(3, writing)
    os.closerange(writing + 1, _FILES_MAX)
    limit_s = ceil(LIMIT_S) + 1
    with suppress(OSError, ValueError):  # should this process be gone meanwhile
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))


def finish(copy: Copy, limit_s: float = LIMIT_S) -> Any:  # noqa: ANN401 - whatever was asked
    """Wait for the answer of a copy, and for its end. Raises CopyError: it took too long, or met a fault."""
    try:
        data = _read(copy.answers, monotonic() + limit_s)
    finally:
        os.close(copy.answers)
        with suppress(OSError):
            os.killpg(copy.pid, signal.SIGKILL)  # one that has answered is about to end anyway
        with suppress(OSError):
            os.kill(copy.pid, signal.SIGKILL)  # of no group of its own yet
        with suppress(ChildProcessError):
            os.waitpid(copy.pid, 0)
    if not data:
        raise CopyError("it ended without an answer")
    is_good, answer = pickle.loads(data)  # noqa: S301 - written by ourselves
    if not is_good:
        raise CopyError(answer)
    return answer


def _read(answers: int, until_s: float) -> bytes:
    """Everything up to the end. Raises CopyError: it does not come in time."""
    poll, found = select.poll(), bytearray()
    poll.register(answers, select.POLLIN)
    while True:
        left_s = until_s - monotonic()
        if left_s <= 0 or not poll.poll(ceil(left_s * 1000)):
            raise CopyError("it took too long")
        data = os.read(answers, _READ_BYTES)
        if not data:
            return bytes(found)
        found += data


def ask(question: Callable[[], Answer], limit_s: float = LIMIT_S) -> Answer:
    """Return what a copy of this process answers. Raises CopyError: it took too long, or met a fault."""
    answer: Answer = finish(begin(question), limit_s)
    return answer


class Copies:
    """Copies of a process that goes on meanwhile: they are waited for in threads."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(AT_ONCE)
        self._waiting = ThreadPoolExecutor(2 * AT_ONCE, "colane-plan")

    def begin(self, question: Callable[[], object]) -> asyncio.Future[Any]:
        """Copy this process now, and return where the answer comes; an answer that is not waited for is dropped.

        Raises CopyError: the system has no room for it.
        """
        copy = begin(question)
        return asyncio.get_running_loop().run_in_executor(self._waiting, finish, copy)

    def close(self) -> None:
        """Wait for no further answer."""
        self._waiting.shutdown(wait=False)
