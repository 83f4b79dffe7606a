"""What a fault of the scheduler itself costs: the one request that met it, which is answered 500.

The agent has the same for jobs (`agent.running.boundaries`).
"""

from __future__ import annotations

import logging
import traceback
from typing import Final

from colane.server.ground.problems import RefusedError

INTERNAL: Final = 500

log = logging.getLogger(__name__)


class FaultLog:
    """Writes each fault's traceback once, and a line each time it is met again: a client may repeat it for ever.

    Attributes:
        met: How often requests met any.
    """

    def __init__(self) -> None:
        self.met = 0
        self._written: dict[str, int] = {}

    def refuse(self, error: Exception) -> RefusedError:
        """Log a fault that nothing foresaw, and return what the request that met it is told."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f"{last[0].filename.rpartition('/')[2]}:{last[0].lineno}" if last else "an unknown place"
        self.met += 1
        self._written[place] = met = self._written.get(place, 0) + 1
        if met == 1:
            log.error("a request met a fault of the scheduler's own, at %s; it changed nothing", place, exc_info=error)
        else:
            log.error("a request met the fault at %s again (%d times): %r", place, met, error)
        text = f"the scheduler met a fault of its own ({type(error).__name__} at {place}) and changed nothing"
        return RefusedError.because(INTERNAL, f"{text}; its log has the rest: please report it")
