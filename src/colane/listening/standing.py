"""What is known of a connection, told to what answers on it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Scope

PEER_UID: Final = "peer_uid"
"""In a request's state where it came over a unix socket: the user of the process at its other end."""
STANDING: Final = "standing"  # in a request's state: the `Standing` of its connection


@dataclass(slots=True)
class Standing:
    """What is known of a connection."""

    # a caller that is known has asked on it, by a token or by its user: it makes no room for strangers
    is_known: bool = False
    is_trusted: bool = False  # an agent or an operator has asked on it: it is not closed to make room for others
    is_whole: bool = True  # the request that was last begun on it has come to its end
    is_left: bool = False  # it has its answer, and what it still sends is thrown away
    is_gone: bool = False  # it is closed: no client waits for an answer on it
    # a request on it that is given up where no client waits for it, as it is asked again
    waits: asyncio.Task[Any] | None = None

    def leave(self) -> None:
        """It has been closed."""
        self.is_gone = True
        if self.waits is not None:
            self.waits.cancel()

    def meet(self, *, is_trusted: bool) -> None:
        """A caller that is known asks on it."""
        self.is_known = True
        self.is_trusted |= is_trusted


def standing_of(scope: Scope) -> Standing:
    """Return that of a request's connection; one of its own where none is told, as of a request in memory."""
    found: Standing = scope.setdefault("state", {}).setdefault(STANDING, Standing())
    return found


# -- Callers that are not known are answered at a pace, so that others get their turn however many of them ask.


PACE_PER_S: Final = 100
BURST: Final = 300  # so many are answered at once after a quiet time: a browser takes 30 files for a page
WAIT_MAX_S: Final = 5.0


class Turnstile:
    """Spaces the answers of one process to callers that are not known."""

    def __init__(self) -> None:
        self._free_s = 0.0

    async def wait(self, standing: Standing) -> bool:
        """Wait until a caller's turn has come; whether it is still there."""
        if not standing.is_known:
            now_s = asyncio.get_running_loop().time()
            self._free_s = min(max(self._free_s, now_s - BURST / PACE_PER_S) + 1 / PACE_PER_S, now_s + WAIT_MAX_S)
            if self._free_s > now_s:
                await asyncio.sleep(self._free_s - now_s)
        return not standing.is_gone
