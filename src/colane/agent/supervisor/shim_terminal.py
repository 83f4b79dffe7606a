"""The terminal of a job that has one: what is typed comes by a named pipe, what it shows goes the way of all output.

Each message of the pipe is written at once, in no more than `PIPE_BUF` bytes, so that those of two who type do not mix:
a byte that tells its kind, two that tell how long it is, and that. Nothing is waited for: a job that does not read what
is typed loses what goes beyond `TYPED_MAX_BYTES`.

Standard library alone, and of that only what starts fast: see `shim`.
"""

from __future__ import annotations

import os
import select
import time

KEYS = "terminal"
"""The pipe, in the job's directory."""

TYPED, SIZE = b"t", b"s"
"""Kinds of messages: bytes that were typed; how many rows and columns there are, two bytes each."""

HEAD_BYTES = 3
MESSAGE_MAX_BYTES = select.PIPE_BUF - HEAD_BYTES

TYPED_MAX_BYTES = 1 << 16
READ_BYTES = 1 << 16

LEFT_MAX_S = 3600.0
"""A terminal at which no user has been for so long is hung up."""
LEFT = "no user was at its terminal for an hour: it is hung up"

TERMINAL_LOOK_MS = 5000.0
FULL_LOOK_MS = 20.0
"""How often it is looked whether a job reads again that has not read all that was typed."""


class Terminal:
    """The side of it that types.

    Args:
        fd: Its end here, which is read by the supervisor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._typed = b""
        self._rest = b""
        self._heard_s = time.monotonic()
        os.mkfifo(KEYS, 0o600)
        self._keys_fd = os.open(KEYS, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def listen(self, poll: select.poll) -> None:
        """Be told by what the supervisor waits by that there is something to hear."""
        poll.register(self._keys_fd, select.POLLIN)

    @property
    def look_ms(self) -> float:
        """How soon it is to be looked at again."""
        return FULL_LOOK_MS if self._typed else TERMINAL_LOOK_MS

    def is_left(self, now_s: float) -> bool:
        """Whether no user has been there for too long."""
        return now_s >= self._heard_s + LEFT_MAX_S

    def hear(self) -> None:
        """Take what has come through the pipe."""
        try:
            self._rest += os.read(self._keys_fd, READ_BYTES)
        except BlockingIOError:
            return
        self._heard_s = time.monotonic()
        while len(self._rest) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(self._rest[1:HEAD_BYTES], "big")
            if len(self._rest) < end:
                break
            kind, said = self._rest[:1], self._rest[HEAD_BYTES:end]
            self._rest = self._rest[end:]
            if kind == TYPED:
                self._typed = (self._typed + said)[:TYPED_MAX_BYTES]
            elif kind == SIZE and len(said) == 4:
                from termios import tcsetwinsize  # noqa: PLC0415 - jobs without a terminal do not load it

                tcsetwinsize(self._fd, (int.from_bytes(said[:2], "big"), int.from_bytes(said[2:], "big")))
        self.type()

    def type(self) -> None:
        """Pass on as much as the job takes now."""
        while self._typed:
            try:
                self._typed = self._typed[os.write(self._fd, self._typed) :]
            except BlockingIOError:
                return
            except OSError:
                self._typed = b""

    def close(self, poll: select.poll) -> None:
        """Hear no more, as it is hung up."""
        poll.unregister(self._keys_fd)
        os.close(self._keys_fd)


def message(kind: bytes, said: bytes) -> bytes:
    """Return one as it stands in the pipe; of at most `MESSAGE_MAX_BYTES`."""
    return kind + len(said).to_bytes(2, "big") + said


def open_terminal(run_as: tuple[int, ...]) -> tuple[int, int]:
    """Return our end of a new terminal and the job's, whose device is its user's."""
    ours, jobs = os.openpty()
    if run_as:
        os.fchown(jobs, run_as[0], -1)
    return ours, jobs
