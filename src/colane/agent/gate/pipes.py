"""The pipes on which processes of a job wait to be asked something, through the adaptor in them (`adaptor.stacks`).

They lie where the job's own user writes, who may put anything there: nothing is followed and nothing waited for.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Container
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from colane.adaptor import wire
from colane.adaptor.stacks import PREFIX
from colane.adaptor.stillness import QUESTION
from colane.agent.files.jobdir import NAMES_MAX, RANKS_MAX

_PIPE = re.compile(re.escape(PREFIX) + r"(x|[0-9]{1,9})\.([0-9]{1,10})\.[0-9a-f]{8}", re.ASCII)


class Pipe(NamedTuple):
    """Where one process waits to be asked."""

    path: Path  # the pipe
    rank: int | None  # of the whole job, as it said when it made it
    pid: int  # as it numbers itself


def pipes_in(directory: Path) -> list[Pipe]:
    """Find the pipes beside a job's steps file. Raises OSError: the directory cannot be read."""
    names = [entry.name for entry in islice(os.scandir(directory), NAMES_MAX)]
    matches = [match for match in map(_PIPE.fullmatch, names) if match is not None]
    return [
        Pipe(directory / match[0], None if match[1] == "x" else int(match[1]), int(match[2]))
        for match in matches[:RANKS_MAX]
    ]


def put(path: Path, question: bytes) -> bool | None:
    """Ask one process; whether there is one to ask, None where it may be between two questions."""
    try:
        fd = wire.open_own(path, os.O_WRONLY, stat.S_ISFIFO)
    except OSError as error:
        return None if error.errno == errno.ENXIO else False
    try:
        return os.write(fd, question) == len(question)
    except OSError:
        return False
    finally:
        os.close(fd)


def ask_to_watch(directory: Path, pids: Container[int]) -> None:
    """Have processes, as they number themselves, watch whether they stand still; it may be that one does not hear."""
    with suppress(OSError):
        for pipe in pipes_in(directory):
            if pipe.pid in pids:
                put(pipe.path, QUESTION)
