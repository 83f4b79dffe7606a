"""A training's saved state on disk: always a whole one, and the one before. Needs no framework.

A state is written beside the last one, forced to disk and renamed into its place; the last one becomes the one before.
A kill or a power cut at any moment leaves one of the two whole, and a digest tells which.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MAGIC = b"CLNSTATE"
_DIGEST_BYTES = hashlib.sha256().digest_size


class CorruptStateError(Exception):
    """What lies there is no whole state; the text says of which file and why."""


class SavedState(NamedTuple):
    """A state as it was written, and the file it was read from."""

    path: Path
    data: bytes


class StateFile:
    """The state of one job.

    Attributes:
        path: The last one.
        before: The one before it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.before = path, path.with_name(f"{path.name}.before")
        self._draft = path.with_name(f"{path.name}.new")

    def write(self, data: bytes) -> None:
        """Put a new state into place; until that is done, and if it fails, the last one stays.

        Raises:
            OSError: The directory is missing, cannot be written, or its disk is full.
        """
        try:
            with self._draft.open("wb") as file:
                file.write(MAGIC + hashlib.sha256(data).digest())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)
            raise
        with suppress(FileNotFoundError):
            self.path.replace(self.before)
        self._draft.replace(self.path)
        _force(self.path.parent)

    def states(self) -> Iterator[SavedState | CorruptStateError]:
        """Yield what is there, newest first: a whole state, or what is wrong with it.

        Raises:
            OSError: What lies there may not be read.
        """
        for path in (self.path, self.before):
            with suppress(FileNotFoundError, NotADirectoryError):
                try:
                    yield SavedState(path, _whole(path))
                except CorruptStateError as error:
                    yield error


def _whole(path: Path) -> bytes:
    """Read a state.

    Raises:
        CorruptStateError: It is cut short or changed.
        FileNotFoundError: There is none.
    """
    content = path.read_bytes()
    head = len(MAGIC) + _DIGEST_BYTES
    if not content.startswith(MAGIC):
        raise CorruptStateError(f"{path} is no saved state")
    data = content[head:]
    if hashlib.sha256(data).digest() != content[len(MAGIC) : head]:
        raise CorruptStateError(f"{path} is corrupt: its digest does not fit")
    return data


def _force(folder: Path) -> None:
    """Have the new names survive a power cut, too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
