"""Types at the terminal of a job and waits for what it shows."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from base64 import b64decode
from pathlib import Path
from typing import Final, NamedTuple

from colane.agent.files.logs import LogRange, read_log
from colane.agent.supervisor.shim_files import EXIT
from colane.agent.supervisor.shim_terminal import KEYS, SIZE, TYPED, message

SHOWN_MAX_BYTES: Final = 64 * 1024  # in one answer: each may be kept for one who does not take it
LOOK_S: Final = 0.02  # how often it is looked for output: a person sees no echo that is later by that


class TypedWords(NamedTuple):
    """What the scheduler passes on, which it has judged: the fields of `api.terminals.TerminalBody`."""

    typed: bytes = b""
    rows: int = 0
    columns: int = 0
    offset: int | None = None
    wait_s: float = 0.0

    @classmethod
    def read(cls, body: bytes) -> TypedWords:
        """Read it from JSON. Raises ValueError: it is no such thing."""
        try:
            told = json.loads(body)
            known = {name: told[name] for name in cls._fields if name in told}
            return cls(**known)._replace(typed=b64decode(told.get("typed", ""), validate=True))
        except (AttributeError, TypeError) as error:
            raise ValueError(f"not what is said at a terminal: {error}") from error


async def at_terminal(directory: Path | None, said: TypedWords) -> LogRange:
    """Type, and return output from an offset on, as soon as there is any or the job has ended.

    Args:
        directory: That of the attempt; None where there is none.
        said: What is typed, and what is waited for.

    Raises:
        FileNotFoundError: It has no terminal, or its other end is closed, and no output is left.
    """
    if directory is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    until_s = asyncio.get_running_loop().time() + said.wait_s
    is_heard = _say(directory, said)
    part = LogRange(b"", max(said.offset or 0, 0))
    while said.offset is not None:
        part = read_log(directory, said.offset, SHOWN_MAX_BYTES)
        if part.data or _has_ended(directory) or asyncio.get_running_loop().time() >= until_s:
            break
        await asyncio.sleep(LOOK_S)
    if not is_heard and not part.data and not (directory / KEYS).exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory / KEYS))
    return part


def _has_ended(directory: Path) -> bool:
    """Whether nothing more will come; the directory of what has ended goes elsewhere."""
    return (directory / EXIT).exists() or not directory.exists()


def _say(directory: Path, said: TypedWords) -> bool:
    """Put what is said into the pipe; whether there is one, and a supervisor that reads it."""
    window = said.rows.to_bytes(2, "big") + said.columns.to_bytes(2, "big") if said.rows else b""
    try:
        fd = os.open(directory / KEYS, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, message(SIZE, window))  # it also says that a user is there
        if said.typed:
            os.write(fd, message(TYPED, said.typed))
    except BlockingIOError:
        return True  # the job has been stopped for so long that its pipe is full
    finally:
        os.close(fd)
    return True
