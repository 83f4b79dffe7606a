"""Empties a directory, however deep, wide and odd the tree below it.

    python -I -S removal.pyc DESCRIPTOR

Run as the user whose tree it is, so that it can touch nothing else. No path is built and nothing calls itself: what
lies two levels down is moved to the top, again and again, so that depth costs a rename and no stack. It ends with 0
when nothing is left, with 1 when something cannot be removed or its time is over.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from itertools import islice

BATCH = 1000  # names held at once: a directory may have millions

TIME_MAX_S = 120.0

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Emptying:
    """One directory that is being emptied."""

    def __init__(self, top_fd: int, until_s: float) -> None:
        self._top_fd = top_fd
        self._until_s = until_s
        self._serial = 0

    def run(self) -> bool:
        """Whether nothing is left."""
        os.fchmod(self._top_fd, stat.S_IRWXU)
        while time.monotonic() < self._until_s:
            batch = names(self._top_fd)
            if not batch:
                return True
            if not sum([self._remove(name) for name in batch]):
                return False
        return False

    def _remove(self, name: bytes) -> bool:
        """Remove one entry of the top; whether anything has changed by that."""
        if unlinked(name, self._top_fd):
            return True
        try:
            fd = opened(name, self._top_fd)
        except OSError:
            return False
        try:
            moved = self._lift(fd)
        finally:
            os.close(fd)
        return unlinked(name, self._top_fd) or moved

    def _lift(self, fd: int) -> bool:
        """Remove files from a directory of the top, and move its directories beside it."""
        has_changed = False
        while time.monotonic() < self._until_s:
            done = [unlinked(name, fd) or self._move(name, fd) for name in names(fd)]
            has_changed = has_changed or any(done)
            if not any(done):
                break
        return has_changed

    def _move(self, name: bytes, fd: int) -> bool:
        try:
            os.close(opened(name, fd))  # a directory that is not writable cannot be moved
        except OSError:
            return False
        for _ in range(BATCH):
            self._serial += 1
            try:
                os.rename(name, b".colane-%d-%d" % (os.getpid(), self._serial), src_dir_fd=fd, dst_dir_fd=self._top_fd)
            except (FileExistsError, NotADirectoryError):
                continue
            except OSError as error:
                if error.errno == 39:  # ENOTEMPTY: there is such a directory
                    continue
                return False
            return True
        return False


def names(fd: int) -> list[bytes]:
    """Some names in a directory."""
    with os.scandir(fd) as entries:
        return [os.fsencode(entry.name) for entry in islice(entries, BATCH)]


def unlinked(name: bytes, fd: int) -> bool:
    """Remove a file, or a directory that is empty; whether it is gone."""
    for remove in (os.unlink, os.rmdir):
        try:
            remove(name, dir_fd=fd)
        except FileNotFoundError:
            return True
        except OSError:
            continue
        return True
    return False


def opened(name: bytes, fd: int) -> int:
    """Open a directory and make it ours to change; its owner may have denied itself access."""
    try:
        found = os.open(name, OPEN, dir_fd=fd)
    except PermissionError:
        if os.geteuid() == 0:
            raise
        os.chmod(name, stat.S_IRWXU, dir_fd=fd)
        found = os.open(name, OPEN, dir_fd=fd)
    try:
        os.fchmod(found, stat.S_IRWXU)
    except OSError:
        os.close(found)
        raise
    return found


if __name__ == "__main__":
    sys.exit(0 if Emptying(int(sys.argv[1]), time.monotonic() + TIME_MAX_S).run() else 1)
