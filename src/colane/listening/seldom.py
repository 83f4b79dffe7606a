"""Log lines that others can bring about as often as they like are written once in a while."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection
from math import inf
from typing import Final

PERIOD_S: Final = 60.0
KINDS_MAX: Final = 100
_DIGITS: Final = re.compile(r"\d+")


class Seldom(logging.Filter):
    """Lets a message through once in a period, with how often it was left out before; numbers in it may differ."""

    def __init__(self, messages: Collection[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """As a filter of a logger, watch these messages, as they are before their arguments are put in."""
        super().__init__()
        self._messages = messages
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is written."""
        message = str(record.msg)
        if self._messages is not None and message not in self._messages:
            return True
        line = self.due(message)
        record.msg = line or message
        return line is not None

    def due(self, message: str) -> str | None:
        """Return the line that is to be written now; None where it is not time for one."""
        key, now_s = _DIGITS.sub("", message), self._clock()
        last_s, left_out = self._told.pop(key, (-inf, 0))
        if now_s < last_s + PERIOD_S:
            self._told[key] = last_s, left_out + 1
            return None
        while len(self._told) >= KINDS_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = now_s, 0
        return f"{message} (and {left_out} more such since this was last said)" if left_out else message
