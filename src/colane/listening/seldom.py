"""Log lines that others can bring about as often as they like are written once in a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

PERIOD_S: Final = 60.0


class Seldom(logging.Filter):
    """Lets a message through once in a period, with how often it was left out before."""

    def __init__(self, messages: Collection[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Watch these messages, as they are before their arguments are put in; all of them by default."""
        super().__init__()
        self._messages = messages
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is written."""
        message = str(record.msg)
        if self._messages is not None and message not in self._messages:
            return True
        now_s = self._clock()
        last_s, left_out = self._told.get(message, (-PERIOD_S, 0))
        if now_s < last_s + PERIOD_S and message in self._told:
            self._told[message] = last_s, left_out + 1
            return False
        self._told[message] = now_s, 0
        if left_out:
            record.msg = f"{message} (and {left_out} more such since this was last said)"
        return True
