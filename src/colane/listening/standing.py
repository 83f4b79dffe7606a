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
