"""What is yet to be sent, and up to which change all is in it: in a file, so that each is sent at least once."""

from __future__ import annotations

import json
import logging
from collections import deque
from pathlib import Path
from typing import Any, Final

from colane.server.ground.whole_file import write_whole

PENDING_MAX: Final = 1_000  # of each channel: older ones are let go of, and that is logged

log = logging.getLogger(__name__)
Waiting = dict[str, Any]  # a message with `first_s`, when it was to be sent first


class NotifyOutbox:
    """The messages that are yet to be sent.

    Args:
        path: The file; None keeps it in memory alone.

    Attributes:
        seen: Number of the last change that was looked at; None before the first.
        pending: By channel, the oldest first.
        idle_told: Since when jobs were idle of which that was told.
        soon_told: The attempt before whose start it was told that a job starts soon.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.seen: int | None = None
        self.pending: dict[str, deque[Waiting]] = {}
        self.idle_told: dict[int, float] = {}
        self.soon_told: dict[int, int] = {}
        if path is not None and path.exists():
            try:
                body = json.loads(path.read_text(encoding="utf-8"))
                self.seen = None if body["seen"] is None else int(body["seen"])
                self.pending = {str(name): deque(rows) for name, rows in body["pending"].items()}
                self.idle_told = {int(job): float(at_s) for job, at_s in body["idle_told"].items()}
                self.soon_told = {int(job): int(attempt) for job, attempt in body.get("soon_told", {}).items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.warning("%s cannot be read and is begun anew; what was yet to be told is lost: %s", path, error)
                self.seen, self.pending, self.idle_told, self.soon_told = None, {}, {}, {}

    def add(self, channel: str, message: Waiting) -> None:
        """Keep a message to be sent."""
        waiting = self.pending.setdefault(channel, deque())
        waiting.append(message)
        if len(waiting) > PENDING_MAX:
            log.warning("channel %s: %s is not told, as too many wait", channel, waiting.popleft()["id"])

    def text(self) -> str:
        """Return what the file is to hold now."""
        pending = {name: list(rows) for name, rows in self.pending.items()}
        told = {"idle_told": self.idle_told, "soon_told": self.soon_told}
        return json.dumps({"seen": self.seen, "pending": pending, **told})

    def write(self, text: str) -> None:
        """Write the file; what is in it is whole at any time. Raises OSError: it cannot be written."""
        if self._path is not None:
            write_whole(self._path, text)
