"""A second copy of a job's output, in the file that its owner has named.

The file is opened by the job's own process, as the job's user and in its directory, and handed to the shim: who may not
write it learns so at the start, and no user has the agent's rights over files. It is written by a thread, for a file
system that hangs must not keep the shim from ending its job in time, and with the rights of the job's user: quotas and
blocks that are reserved for root hold. What cannot be written is lost here, and said in the log, which has it.

Standard library alone, and of that only what starts fast: see `shim`.
"""

# ruff: noqa: PTH103, PTH120 - pathlib slows every start

from __future__ import annotations

import _thread
import os
import socket
import stat
from queue import SimpleQueue

from colane.agent.supervisor.shim_system import write_files_as

WAITING_BYTES_MAX = 2**20
"""A job that writes faster than its file takes it waits from here on, as for any file."""
CLOSE_MAX_S = 10.0
"""So long the end of a job waits for the last of its output to be in its file."""


def open_output(path: str, *, adds: bool) -> int:
    """Open a file for output, with the directories it lies in, and return its descriptor.

    Args:
        path: Its name.
        adds: What is in it stays, and more is added to it.

    Raises:
        OSError: It cannot be written.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    fd = os.open(path, flags, 0o666)
    os.set_blocking(fd, True)  # only a pipe that has no reader was not to be waited for
    if not adds and stat.S_ISREG(os.fstat(fd).st_mode):
        os.ftruncate(fd, 0)
    return fd


def hand_over(to: socket.socket, fd: int) -> None:
    """Give a descriptor to the process at the other end."""
    socket.send_fds(to, [b"."], [fd])
    os.close(fd)


def taken_over(end: socket.socket) -> int:
    """Return the descriptor that was handed over; -1 where none was."""
    with end:
        _, fds, _, _ = socket.recv_fds(end, 1, 1)
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds[0] if fds else -1


class OutputCopy:
    """Writes to a file what it is given, in a thread of its own.

    Args:
        fd: The file, from now on its own.
        path: Its name, for what is said of it.
        run_as: User and groups of the job; none where they are ours.
    """

    def __init__(self, fd: int, path: str, run_as: tuple[int, ...]) -> None:
        self._fd = fd
        self._path = path
        self._run_as = run_as
        self._problem = ""
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._waiting = self._written = 0
        self._is_told = False
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._run, ())

    @property
    def is_behind(self) -> bool:
        """Whether it has so much to write that it should be given no more for now."""
        return self._waiting - self._written > WAITING_BYTES_MAX

    def write(self, data: bytes) -> None:
        """Have data written."""
        self._waiting += len(data)
        self._queue.put(data)

    def problem(self) -> str:
        """What the job's owner is to be told, once."""
        said, self._problem = self._problem, ""
        return said

    def close(self) -> None:
        """Wait until all is written, or for a while."""
        self._queue.put(b"")
        self._done.acquire(timeout=CLOSE_MAX_S)

    def _run(self) -> None:
        if self._run_as:
            write_files_as(*self._run_as[:2])
        while data := self._queue.get():
            self._put(data)
            self._written += len(data)
        os.close(self._fd)
        self._done.release()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            if not self._is_told:
                self._problem = f"{self._path} lacks some of what follows: {error.strerror}"
            self._is_told = True
