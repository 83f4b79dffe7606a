"""Notice of the end of this machine: a spot instance is taken back, maintenance comes, the agent is told to stop.

The source of the notice writes a file, or answers a command that is asked every few seconds: with exit code 0 there is
notice. What is written is, on its first line, when the machine goes (seconds from now as `120`, or a time as
`2026-11-22T16:00:00Z`; left out where that is not known) and why.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from colane.agent.link.hooks import run_within
from colane.api.reports import NoticeObject

log = logging.getLogger(__name__)

ASKED_EVERY_S: Final = 5.0
"""As often as AWS advises to look for a spot instance's interruption; GCP and Azure give notice of 30 s."""

ANSWERS_WITHIN_S: Final = 10.0
SUSPECTED_FOR_S: Final = 5.0
"""What ends a job's supervisor ends this agent, too, within so long, or it was not the end of this machine."""
TEXT_MAX_BYTES: Final = 1000
REASON_MAX: Final = 200
NOT_RUN: Final = frozenset({126, 127})  # what a shell answers for a program that it cannot start


@dataclass(frozen=True, slots=True)
class Notice:
    """That this machine is about to go."""

    reason: str  # why, as far as was said
    until_s: float | None  # when, on the monotonic clock; None where that is not known

    def told(self, ahead_s: float) -> NoticeObject:
        """Give what the scheduler is told: jobs are to be stopped so long before it goes."""
        left_s = None if self.until_s is None else max(0.0, self.until_s - ahead_s - time.monotonic())
        return {"reason": self.reason, "left_s": left_s}


def parse_notice(text: str, now_s: float, unix_s: float) -> Notice:
    """Return what a file or a command says; what is no time is part of the reason.

    Args:
        text: What was written.
        now_s: The monotonic clock.
        unix_s: The time.
    """
    line = text.strip().partition("\n")[0]
    first, _, rest = line.partition(" ")
    left_s = _left_s(first, unix_s)
    said = line if left_s is None else rest
    reason = "".join([char for char in said if char.isprintable()]).strip()[:REASON_MAX]
    return Notice(reason, None if left_s is None else now_s + left_s)


def _left_s(word: str, unix_s: float) -> float | None:
    with suppress(ValueError):
        left_s = float(word.removesuffix("s"))
        return left_s if 0 <= left_s < 1e9 else None
    with suppress(ValueError):
        at = datetime.fromisoformat(word)
        return max(0.0, at.timestamp() - unix_s) if "T" in word else None
    return None


class NoticeWatch:
    """Knows whether there is notice of this machine's end."""

    def __init__(self, file: Path | None, command: str, nudge: Callable[[], None]) -> None:
        """Begin without notice.

        Args:
            file: There is notice while it is there.
            command: There is notice while it ends with 0; empty for none.
            nudge: Called when there is news.
        """
        self._file = file
        self._command = command
        self._nudge = nudge
        self._text: dict[str, str] = {}
        self._known: dict[str, Notice] = {}
        self._problem = ""
        self._suspected_until_s = math.inf
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask the command from now on."""
        if self._command:
            self._asking = asyncio.create_task(self._ask_on())

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            with suppress(asyncio.CancelledError):
                await self._asking

    def leave(self, reason: str, left_s: float) -> None:
        """The machine goes because we say so."""
        self._known["self"] = Notice(reason, time.monotonic() + left_s)

    def shut(self, source: str, reason: str | None) -> None:
        """The node takes no new jobs for a reason of its own; none: not for this one any more."""
        was = self._known.pop(source, None)
        if reason is not None:
            self._known[source] = Notice(reason, None)
        if (was and was.reason) != reason:
            log.warning("%s", reason or f"{source}: all is well again")
            self._nudge()

    def suspect(self, reason: str) -> None:
        """The machine may be about to go: if it is, there is other word of it soon."""
        self._known["suspected"] = Notice(reason, None)
        self._suspected_until_s = time.monotonic() + SUSPECTED_FOR_S

    def look(self) -> Notice | None:
        """Return the notice there is; of several the one that leaves least time."""
        self._take("file", self._read())
        if time.monotonic() >= self._suspected_until_s:
            self._known.pop("suspected", None)
        ends = sorted(self._known.values(), key=lambda notice: (notice.until_s is None, notice.until_s or 0.0))
        return ends[0] if ends else None

    def messages(self) -> tuple[str, ...]:
        """Say what keeps it from knowing."""
        return (self._problem,) if self._problem else ()

    def _read(self) -> str | None:
        if self._file is None:
            return None
        try:
            with self._file.open("rb") as file:
                return file.read(TEXT_MAX_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem = f"--notice-file {self._file} cannot be read: {error.strerror}"
            return None

    def _take(self, source: str, text: str | None) -> None:
        """What is said counts from when it was first said."""
        if text == self._text.get(source):
            return
        if text is None:
            self._text.pop(source, None)
            self._known.pop(source, None)
            log.warning("the notice that this machine goes is taken back")
        else:
            self._text[source] = text
            self._known[source] = parse_notice(text, time.monotonic(), time.time())
            log.warning("notice that this machine goes: %s", text.strip().partition("\n")[0] or "no more was said")

    async def _ask_on(self) -> None:
        while True:
            before = self._text.get("command"), self._problem
            self._take("command", await self._answer())
            if (self._text.get("command"), self._problem) != before:
                self._nudge()
            await asyncio.sleep(ASKED_EVERY_S)

    async def _answer(self) -> str | None:
        """Return what the command says; None while there is no notice, or where it does not answer."""
        ran = await run_within(["/bin/sh", "-c", f"exec 2>/dev/null; {self._command}"], ANSWERS_WITHIN_S)
        self._problem = f"--notice-command cannot be run: {self._command}" if ran.code in NOT_RUN else ""
        if ran.code is None:
            self._problem = f"--notice-command does not answer within {ANSWERS_WITHIN_S:g} s: {self._command}"
        return ran.said[:TEXT_MAX_BYTES] if ran.code == 0 else None
