"""What a scheduler that does not lead may say: a standby reads, and sends all else to the leader."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from colane.server.ground.problems import RefusedError
from colane.server.store.identity import Leader

READ_BY_STANDBY: Final = re.compile(r"/(health|jobs|live_jobs|finished_jobs|nodes|events|job/\d+(/log)?|node/[^/]+)")
"""Paths that the board answers; others ask the core, or change something."""
ALWAYS: Final = "/health"
LAPSED: Final = (
    "this scheduler could not write to its store for as long as it leads, so another may lead by now: ask that one, or "
    "ask again"
)
NONE_LEADS: Final = (
    "no scheduler leads at present; a standby takes over within the lease of the one that did: ask again"
)


@dataclass(frozen=True, slots=True)
class Leading:
    """Asked at the door."""

    leads: Callable[[], bool] = lambda: True  # whether this scheduler is the one that writes
    is_held: Callable[[], bool] = lambda: True  # whether no other can lead at this moment
    leader: Callable[[], Leader | None] = lambda: None  # the one that leads, where this one does not
    has_lease: bool = False  # whether another may ever lead

    def elsewhere(self, scope: Scope) -> Response | None:
        """Return what sends a request to the leader; None where this scheduler answers it.

        Raises:
            RefusedError: 503, none leads.
        """
        if self.leads() or (scope["method"] in {"GET", "HEAD"} and READ_BY_STANDBY.fullmatch(scope["path"])):
            return None
        leader = self.leader()
        if leader is None or leader.released:
            raise RefusedError.because(503, NONE_LEADS)
        query = scope.get("query_string", b"").decode("latin-1")
        url = f"{leader.url}{quote(scope['path'])}{f'?{query}' if query else ''}"
        detail = f"this scheduler is a standby; the one that leads is at {leader.url}: name both in COLANE_URL"
        return JSONResponse({"detail": detail}, 307, headers={"Location": url})

    def guarded(self, scope: Scope, receive: Receive, send: Send, lapsed: Callable[[], Response]) -> Send:
        """Return what sends an answer only while no other scheduler can lead, and else says so instead.

        It is asked when an answer begins: what was asked before may have waited until another leads.
        """
        if not self.has_lease or scope["path"] == ALWAYS:
            return send
        is_silent = False

        async def sending(message: Message) -> None:
            nonlocal is_silent
            if message["type"] == "http.response.start" and self.leads() and not self.is_held():
                is_silent = True
                await lapsed()(scope, receive, send)
            elif not is_silent:
                await send(message)

        return sending
