"""What the commands of jobs run, looked up before they are judged, apart from the scheduler's turns.

A file system over the network may not answer for minutes, or ever. So files are looked at in a thread, for so long and
no longer; and each path once in a while, as a sweep of a thousand jobs runs one script.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from colane.api.job_request import JobRequest
from colane.server.ground.yielding import in_slices
from colane.server.submitting.family import AsWritten, Disk, NotSeenError, SeenDisk, derive_family

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0  # for so long the files of one request are looked at
SEEN_S: Final = 5.0  # what was seen of files is taken as it was for so long
LOOKS_MAX: Final = 4  # so many threads look at files at once; those that hang are among them


_Command = tuple[tuple[str, ...], str, str]  # a command's words, its working directory, and the job's user


class Families:
    """The families of commands.

    Args:
        known: Those that are known already.
        disk: Where the paths of others lead.
    """

    def __init__(self, known: Mapping[_Command, str] | None = None, disk: Disk | None = None) -> None:
        self._known = dict(known or {})
        self._disk = disk or Disk()

    def of(self, command: Sequence[str], directory: str, user: str) -> str:
        """Return the family of a command; see `derive_family`."""
        key = (tuple(command), directory, user)
        if (found := self._known.get(key)) is None:
            found = self._known[key] = derive_family(key[0], directory, user, self._disk)
        return found


class Lookup:
    """Looks at files in threads of its own.

    Args:
        disk: Makes what looks at files, and keeps what it has seen.
        clock: Seconds that never go back.
    """

    def __init__(self, disk: Callable[[], Disk] = Disk, clock: Callable[[], float] = time.monotonic) -> None:
        self._new_disk, self._clock = disk, clock
        self._disk, self._since_s = disk(), clock()
        self._known: dict[_Command, str] = {}
        self._room = asyncio.Semaphore(LOOKS_MAX)

    async def families(self, requests: Sequence[JobRequest], workdir: str, look_s: float = LOOK_S) -> Families:
        """Return the families of jobs; where their files do not answer in time, by paths as they are written.

        Args:
            requests: The jobs.
            workdir: Working directory of jobs that name none.
            look_s: For how long their files are looked at, seconds.
        """
        asked = dict[_Command, None]()
        async for part in in_slices(requests):
            commands = [one for one in part if one.command and not one.family]
            asked |= {(tuple(one.command or ()), one.workdir or workdir, one.user): None for one in commands}
        if self._clock() >= self._since_s + SEEN_S:
            self._disk, self._since_s, self._known = self._new_disk(), self._clock(), {}
        disk, known = self._disk, self._known
        wanted = [one for one in asked if one not in known]
        if (found := await _seen(wanted, disk)) is None:
            try:
                async with asyncio.timeout(look_s):
                    found = await self._look(wanted, disk)
            except TimeoutError:
                folders = ", ".join(sorted({folder for _, folder, _ in wanted})[:3])
                log.warning("files do not answer in %s: jobs there are known by their paths as written", folders)
                return Families(disk=AsWritten())
        known.update(found)
        return Families({one: known[one] for one in asked}, SeenDisk(disk))

    async def _look(self, wanted: Sequence[_Command], disk: Disk) -> dict[_Command, str]:
        """Look at the files of commands; what it began goes on where it is given up."""
        await self._room.acquire()
        try:
            found = await _seen(wanted, disk)
        except BaseException:
            self._room.release()
            raise
        if found is not None:  # by others meanwhile
            self._room.release()
            return found
        loop = asyncio.get_running_loop()
        looked: asyncio.Future[dict[_Command, str]] = loop.create_future()

        def look() -> None:
            found = {}
            try:
                found = {one: derive_family(*one, disk) for one in wanted}
            finally:
                with suppress(RuntimeError):  # the scheduler has ended meanwhile
                    loop.call_soon_threadsafe(ended, found)

        def ended(found: dict[_Command, str]) -> None:
            self._room.release()
            if not looked.done():
                looked.set_result(found)

        # For threads of a pool the interpreter waits at its end, and one that hangs in a file system never ends.
        threading.Thread(target=look, name="colane-lookup", daemon=True).start()
        return await looked


async def _seen(wanted: Sequence[_Command], disk: Disk) -> dict[_Command, str] | None:
    """Return the families of commands by what was seen of a disk; None where that is not enough."""
    seen, found = SeenDisk(disk), dict[_Command, str]()
    try:
        async for part in in_slices(wanted):
            found |= {one: derive_family(*one, seen) for one in part}
    except NotSeenError:
        return None
    return found
