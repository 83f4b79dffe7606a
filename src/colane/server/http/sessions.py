"""Signed-in browsers: a link that counts once gives a cookie, which stands for the caller that asked for the link."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final

from colane.server.ground.access import Caller, Role, digest_of
from colane.server.ground.problems import RefusedError

COOKIE: Final = "colane-session"
LINK_S: Final = 300.0
SESSION_S: Final = 12 * 3600.0
KEPT_MAX: Final = 1000  # of links, and of sessions, each: the oldest make room
CSRF_HEADER: Final = "x-colane-page"
"""A page of another origin cannot send it without asking first, and is not allowed to."""
READS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """Who is signed in: until when, and whether what the caller brought to get the link still counts."""

    caller: Caller
    until_s: float
    is_known: Callable[[], bool]


@dataclass(slots=True)
class Sessions:
    """Links and sessions by the digest of what opens them; they end with the scheduler's process."""

    clock: Callable[[], float] = time.monotonic  # seconds, of any origin
    _links: dict[str, BrowserSession] = field(default_factory=dict, repr=False)
    _sessions: dict[str, BrowserSession] = field(default_factory=dict, repr=False)

    def link(self, caller: Caller, is_known: Callable[[], bool]) -> str:
        """Return a code that signs a browser in, once and within `LINK_S`.

        Raises:
            RefusedError: 403, an agent or a job asks.
        """
        if caller.role is Role.AGENT or caller.job is not None:
            raise RefusedError.because(403, f"only users sign in to the pages; you are {caller}")
        return _keep(self._links, BrowserSession(caller, self.clock() + LINK_S, is_known))

    def enter(self, code: str) -> str | None:
        """Return the cookie of a new session, None where the code does not count, or no longer."""
        found = self._links.pop(digest_of(code), None)
        if found is None or not self._counts(found):
            return None
        return _keep(self._sessions, BrowserSession(found.caller, self.clock() + SESSION_S, found.is_known))

    def caller(self, header: str | None) -> Caller | None:
        """Return the user who is signed in by a `Cookie` header."""
        try:
            cookie = SimpleCookie(header or "").get(COOKIE)
        except CookieError:
            return None
        found = None if cookie is None else self._sessions.get(digest_of(cookie.value))
        return found.caller if found is not None and self._counts(found) else None

    def _counts(self, session: BrowserSession) -> bool:
        return self.clock() < session.until_s and session.is_known()


def _keep(kept: dict[str, BrowserSession], session: BrowserSession) -> str:
    while len(kept) >= KEPT_MAX:
        del kept[next(iter(kept))]
    key = secrets.token_urlsafe(32)
    kept[digest_of(key)] = session
    return key
