"""What takes minutes is worked out by a process beside the scheduler: niced, on one core, ended with whoever asked.

It is `colane` itself, which asks this scheduler for what has been and simulates it again; of its limits it knows
nothing, and the scheduler goes on as if it were not there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from colane.client.locate import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE
from colane.scheduling.registry import create
from colane.server.ground.problems import RefusedError
from colane.server.ground.whole_file import write_whole
from colane.server.parts import Parts

AT_ONCE: Final = 2  # of all users; each has one
LIMIT_S: Final = 600.0  # of CPU time, and of time
CHARACTERS_MAX: Final = 1 << 20  # of an answer
NICE: Final = 19
NIGHT_LOOK_S: Final = 900.0  # so long after midnight, or after a start, a day is worked out that is not known
DAYS_KEPT: Final = 28

Answer = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Asides:
    """Has such processes answer."""

    parts: Parts  # what the scheduler consists of
    _asking: set[str] = field(default_factory=set)

    def what_if(self, user: str, options: Mapping[str, Sequence[str]], *, shares: bool) -> AsyncGenerator[Answer]:
        """Yield how far `colane whatif` is, and at last what it has found, or why it has not.

        Raises RefusedError: 422, an option that no user may choose; 429, one of the user's is under way, or too many.
        """
        words = [f"--{name}={value}" for name, values in options.items() for value in values]
        words += [] if shares else ["--no-share"]
        for policy in options.get("policy", ()):
            try:
                create(policy)  # by name: a file would run here what its author likes
            except ValueError as error:
                raise RefusedError.because(422, str(error), "policy") from error
        if user in self._asking:
            raise RefusedError.because(429, "a question of yours is being worked out: wait for it, or leave it")
        if len(self._asking) >= AT_ONCE:
            raise RefusedError.because(429, f"{AT_ONCE} questions of others are being worked out: ask again later")
        return self._counted(user, ["whatif", *words])

    async def _counted(self, user: str, words: Sequence[str]) -> AsyncGenerator[Answer]:
        self._asking.add(user)
        try:
            async with aclosing(self.answers(words)) as answers:
                async for answer in answers:
                    yield answer
        finally:
            self._asking.discard(user)

    def told(self, may_see: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Return what sharing did on the last days for those users who may be seen, the last first."""
        days = [{**day, "users": [one for one in day["users"] if may_see(one["user"])]} for day in self._days()]
        return [day for day in reversed(days) if day["users"]]

    async def nightly(self) -> None:
        """Have it worked out each night what sharing did on the day before, until it is cancelled."""
        config = self.parts.config
        while config.nightly and config.shared is not None:
            await asyncio.sleep(NIGHT_LOOK_S)
            midnight = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
            start_s = (midnight - timedelta(hours=12)).replace(hour=0).timestamp()
            if self.parts.leads and all(day["start_s"] != start_s for day in self._days()):
                await self.work_out(start_s, midnight.timestamp())

    async def work_out(self, start_s: float, end_s: float) -> None:
        """Work out what sharing did in a time, and keep it; of a time of which nothing is known that is noted."""
        path, last = self.parts.config.shared, Answer()
        assert path is not None  # noqa: S101 - asked before
        since, until = (datetime.fromtimestamp(at_s).astimezone().isoformat() for at_s in (start_s, end_s))
        words = ["replay", "--by-user", f"--since={since}", f"--until={until}"]
        try:
            async with aclosing(self.answers(words)) as answers:
                async for answer in answers:
                    last = answer
            users = last.get("found", {}).get("users", [])
            days = [*self._days(), {"start_s": start_s, "users": users if len(users) > 1 else []}]
            await asyncio.to_thread(write_whole, path, json.dumps(days[-DAYS_KEPT:]))
        except OSError as error:
            last = {"problem": error}
        if "problem" in last:
            log.info("what sharing did on the day from %s is not told: %s", since, last["problem"])

    def _days(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(self.parts.config.shared.read_text())  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            return []
        return found

    async def answers(self, words: Sequence[str]) -> AsyncGenerator[Answer]:
        """Yield `progress` as it is told, then what was `found` or the `problem`; to close it ends the process."""
        reached = self.parts.config.reached_by
        if not reached:
            yield {"problem": "this scheduler has no address by which a process beside it could ask"}
            return
        known = {name: value for name, value in os.environ.items() if name not in OF_OTHERS}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "colane.cli", *words, "--json", "--progress", env={**known, **ALONE, **reached},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, limit=CHARACTERS_MAX,
        )  # fmt: skip
        assert process.stdout is not None  # noqa: S101 - asked for, as is the other
        assert process.stderr is not None  # noqa: S101
        try:
            _lower(process.pid)
            said, out = "", asyncio.create_task(process.stdout.read(CHARACTERS_MAX))
            async with asyncio.timeout(LIMIT_S):
                async for line in process.stderr:
                    text = line.decode(errors="replace").strip()
                    done, _, many = text.partition(" of ")
                    if done.isdecimal() and many.isdecimal():
                        yield {"progress": [int(done), int(many)]}
                    else:
                        said = text or said
                found = await out
                yield (
                    {"found": json.loads(found)} if await process.wait() == 0 else {"problem": said or "it has failed"}
                )
        except (TimeoutError, ValueError):
            yield {"problem": f"it took longer than {LIMIT_S / 60:g} minutes: ask of a shorter time"}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


OF_OTHERS: Final = (URL_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)
ALONE: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"}


def _lower(pid: int) -> None:
    """Let all others go first, and bound it should this process be gone before it."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})
        resource.prlimit(pid, resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S)))
