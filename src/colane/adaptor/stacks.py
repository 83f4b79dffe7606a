"""Writes the Python stacks of this process when the agent asks for them: of a job that hangs.

A thread waits for that in the kernel, so it answers while the main thread waits in a collective, which lets go of
Python's lock, and it takes no signal that the script may want. It waits in the opening of a pipe, so it holds no
descriptor that a script might close or hand on. Children that the process forks have no such thread.
"""

# ruff: noqa: PTH105, PTH120 - pathlib is an import the job did not ask for

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading

from . import own_threads, stillness
from .aside import debug, replace, safely
from .writer import STEPS_FILE_ENV

PREFIX = "stacks."  # of the pipes beside the steps file: `stacks.RANK.PID.NUMBER`, the rank `x` where it is not known
ANSWER = ".answer"  # behind a pipe's name: the file with the answer
ASKED_BYTES = 16  # of a question: what the answer begins with, so that it is not taken for an earlier one

FRAMES_MAX, TEXT_MAX = 100, 50_000
"""Of a thread's calls those beyond are left out, and threads behind so many characters."""

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK")
"""Where launchers tell each process of a distributed job its number among all."""

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_listening = 0  # the process that listens: a forked child is another


def listen() -> None:
    """Answer from now on, in a process of a job; once, however often it is called."""
    global _listening  # noqa: PLW0603  # one for each process
    steps = os.environ.get(STEPS_FILE_ENV)
    if not steps or _listening == os.getpid():
        return
    _listening = os.getpid()
    name = "%s%s.%d.%s" % (PREFIX, rank() or "x", os.getpid(), os.urandom(4).hex())  # noqa: UP031
    path = os.path.join(os.path.dirname(steps), name)  # noqa: PTH118
    os.mkfifo(path, 0o600)
    atexit.register(_leave, path, os.getpid())
    own_threads.start(_answer_all, path)


def watch_groups(torch: Any) -> None:
    """Listen before the process joins others: where one of them does not come, it hangs there."""
    distributed = getattr(torch, "distributed", None)
    own = getattr(distributed, "init_process_group", None)
    if own is None:
        return
    import functools

    @functools.wraps(own)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        safely(listen)
        return own(*args, **kwargs)

    replace(distributed, "init_process_group", init_process_group)


def rank() -> str:
    """Return this process's number among all of its job, empty where it is not known."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank())
    found = next((os.environ[name] for name in RANK_NAMES if name in os.environ), "")
    return found if found.isdecimal() else ""


def _answer_all(path: str) -> None:
    """Wait for questions until the process ends; whatever fails, there are no more answers, and no noise."""
    try:
        while True:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # waits here until the agent opens it
            try:
                asked = os.read(fd, ASKED_BYTES)
            finally:
                os.close(fd)
            if asked == stillness.QUESTION:
                stillness.begin()
            elif asked.isalnum():
                _answer(path, asked.decode("ascii"))
    except FileNotFoundError:
        return  # the process is at its end, or its directory is gone
    except Exception as error:  # noqa: BLE001  # the job must run without us
        debug(f"no more stacks are told: {error!r}")


def _answer(path: str, asked: str) -> None:
    """Write the stacks of all threads; the file is there whole or not at all."""
    draft = f"{path}.new"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        text = "%s %s\n%s" % (asked, rank() or "x", written())  # noqa: UP031
        os.write(fd, text.encode("utf-8", "backslashreplace"))
    finally:
        os.close(fd)
    os.replace(draft, path + ANSWER)


def written() -> str:
    """Return the stacks of all threads but this one: the main one first, and of each the innermost call first."""
    names = {one.ident: one.name for one in list(threading._active.values())}  # type: ignore[attr-defined]  # noqa: SLF001
    main, own = threading.main_thread().ident, _thread.get_ident()
    threads = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001
    parts, left = [], TEXT_MAX
    for ident, frame in threads:
        if ident != own and left > 0:
            parts.append("Thread %s, innermost call first:\n%s" % (names.get(ident, ident), _calls(frame)))  # noqa: UP031
            left -= len(parts[-1])
    return "\n\n".join(parts) + "\n"


def _calls(innermost: FrameType | None) -> str:
    lines: list[str] = []
    frame = innermost
    while frame is not None and len(lines) < FRAMES_MAX:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        lines.append('  File "%s", line %d, in %s' % (code.co_filename, frame.f_lineno or 0, name))  # noqa: UP031
        frame = frame.f_back
    return "\n".join(lines)


def _leave(path: str, pid: int) -> None:
    """Take the pipe away at the end of the process; a forked child leaves it to its parent."""
    if os.getpid() == pid:
        for name in (path, path + ANSWER):
            try:
                os.unlink(name)  # noqa: PTH108
            except OSError:
                continue
