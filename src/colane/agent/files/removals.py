"""Takes away what jobs have left on the disk, whatever it is.

A directory with a few plain files is emptied at once. Any other tree is emptied by a child, as the user whose tree it
is (`removal`): a deep or endless one costs the agent nothing, and what cannot be removed is said and left.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from colane.agent.files import removal

log = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 64  # names in a directory that is emptied without a child

CHILDREN_MAX: Final = 2
KILLED_AFTER_S: Final = removal.TIME_MAX_S * 1.5
AGAIN_S: Final = 3600.0  # what could not be removed is tried again after this long

LEFT: Final = "{count} could not be removed of what jobs have left, as {path}"


class _Emptier(NamedTuple):
    process: subprocess.Popen[bytes]
    began_s: float


class Removals:
    """Removes directories; none of its methods raises for what is in them."""

    def __init__(self, program: Callable[[], Path]) -> None:
        """Begin with nothing to remove.

        Args:
            program: Gives the copy of `removal`.
        """
        self._program = program
        self._waiting: deque[Path] = deque()
        self._children: dict[Path, _Emptier] = {}
        self._failed: dict[Path, float] = {}

    def take(self, path: Path) -> bool:
        """Remove a directory; whether it is gone already. `look` goes on with it otherwise."""
        if path in self._children or path in self._waiting or self._failed.get(path, 0.0) > time.monotonic():
            return False
        try:
            if self._remove_at_once(path):
                self._failed.pop(path, None)
                return True
        except OSError as error:
            self._fail(path, error.strerror or "")
            return False
        self._waiting.append(path)
        self.look()
        return False

    def look(self) -> None:
        """Go on with what waits and with what is under way."""
        for path, child in list(self._children.items()):
            if child.process.poll() is None:
                if time.monotonic() > child.began_s + KILLED_AFTER_S:
                    child.process.kill()
                continue
            del self._children[path]
            if child.process.returncode:
                self._fail(path, f"exit code {child.process.returncode}")
                continue
            with suppress(OSError):
                path.rmdir()
        while self._waiting and len(self._children) < CHILDREN_MAX:
            path = self._waiting.popleft()
            try:
                self._children[path] = _Emptier(self._start(path), time.monotonic())
            except FileNotFoundError:
                continue
            except (OSError, subprocess.SubprocessError) as error:
                self._fail(path, str(error))

    def messages(self) -> tuple[str, ...]:
        """What could not be removed."""
        return (LEFT.format(count=len(self._failed), path=next(iter(self._failed))),) if self._failed else ()

    def close(self) -> None:
        """Leave the rest to the next agent."""
        self._waiting.clear()
        for child in self._children.values():
            child.process.kill()
            child.process.wait()
        self._children.clear()

    def _fail(self, path: Path, problem: str) -> None:
        log.warning("%s is not removed: %s", path, problem)
        self._failed[path] = time.monotonic() + AGAIN_S

    @staticmethod
    def _remove_at_once(path: Path) -> bool:
        """Whether it was small and plain, and is gone."""
        try:
            fd = os.open(path, removal.OPEN)
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            path.unlink()  # a link or a file in its place
            return True
        except PermissionError:
            return False
        try:
            with os.scandir(fd) as entries:
                found = [entry.name for entry in islice(entries, AT_ONCE_MAX + 1)]
            left = [name for name in found if len(found) > AT_ONCE_MAX or not removal.unlinked(os.fsencode(name), fd)]
            if left:
                return False
        finally:
            os.close(fd)
        path.rmdir()
        return True

    def _start(self, path: Path) -> subprocess.Popen[bytes]:
        at = os.open(path.parent, removal.OPEN)
        try:
            fd = removal.opened(os.fsencode(path.name), at)
        finally:
            os.close(at)
        try:
            owner, is_root = os.fstat(fd), os.geteuid() == 0
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(self._program()), str(fd)],
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
                user=owner.st_uid if is_root else None,
                group=owner.st_gid if is_root else None,
                extra_groups=[] if is_root else None,
            )
        finally:
            os.close(fd)
