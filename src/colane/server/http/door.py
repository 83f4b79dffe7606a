"""The door: caller, Host, content type and body size are judged here, before any route sees a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colane.client.hosts import LOOPBACK_NAMES, host_name
from colane.listening.standing import PEER_UID, Turnstile, standing_of
from colane.server.ground.access import Caller, Callers, Role
from colane.server.ground.job_tokens import is_of_job
from colane.server.ground.problems import RefusedError
from colane.server.http.leading import LAPSED, Leading
from colane.server.http.sessions import CSRF_HEADER, READS, Sessions

# -- What callers may have under way at once: none takes what others need, and all leave something to agents.

REQUESTS_MAX: Final = 256  # of one user, or agent: those that wait for an answer, and streams
FRACTION: Final = 4  # one of so many parts of the bodies may be one user's, or one agent's; one part is kept for agents
AGENTS_PATHS: Final = frozenset({"/node", "/finished_job", "/finished_jobs"})
REPORTS: Final = "/report"  # end of the path of any node's reports


def is_of_agents(path: str) -> bool:
    """Whether agents say there what they know: by whichever token, it may be long, and take what is kept."""
    return path in AGENTS_PATHS or path.endswith(REPORTS)


@dataclass(slots=True)
class Shares:
    """Requests and the bytes of their bodies, from when they come until they are answered."""

    bodies_bytes_max: int  # all bodies together
    _requests: Counter[Caller] = field(default_factory=Counter)
    _bytes: Counter[Caller] = field(default_factory=Counter)
    _all_bytes: int = 0

    @contextmanager
    def request(self, caller: Caller, path: str) -> Iterator[Callable[[int], int]]:
        """Count a request while it is answered; give what adds to the bytes of its body and returns how many it has.

        Raises:
            RefusedError: 503, the caller has too many already; when bytes are added, too, there are too many of them.
        """
        one = Caller(caller.name, caller.role)  # all jobs of a user are the user
        if self._requests[one] >= REQUESTS_MAX and one.role is not Role.OPERATOR:
            text = f"{one} waits for {REQUESTS_MAX} answers already; ask again when some have come"
            raise RefusedError.because(503, text)
        part = self.bodies_bytes_max // FRACTION
        is_agents = one.role is not Role.USER and is_of_agents(path)
        most = self.bodies_bytes_max - (0 if is_agents else part)
        taken = 0

        def add(size: int) -> int:
            nonlocal taken
            taken += size
            self._bytes[one] += size
            self._all_bytes += size
            if self._all_bytes > most:
                raise RefusedError.because(503, "too much is being sent to the scheduler at once; try again")
            if self._bytes[one] > part and one.role is not Role.OPERATOR:
                text = f"{one} sends more than {part} bytes at once; send this again when the rest is answered"
                raise RefusedError.because(503, text)
            return taken

        self._requests[one] += 1
        try:
            yield add
        finally:
            self._all_bytes -= taken
            for counted, number in ((self._requests, 1), (self._bytes, taken)):
                counted[one] -= number
                if not counted[one]:
                    del counted[one]


WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
OPEN_PATHS: Final = frozenset({"/health", "/", "/sign_in"})
"""Answered without a token, so that a supervisor can ask, and a browser that has none yet."""
OPEN_FILES: Final = "/page/"  # begin of the paths of the page's files: there is nothing of a cluster in them

LARGE_PATHS: Final = frozenset({"/job", "/jobs", "/plan"})
"""Those at which users send more than a form; at `is_of_agents` agents and operators do."""
FORM_BYTES_MAX: Final = 64 * 1024
"""At all other paths: to judge what has thousands of wrong fields takes seconds."""

LEASE_HEADER: Final = "Colane-Lease"  # of a refusal to an agent: its jobs go on for so many seconds from when it asked
CALLER: Final = "caller"  # in a request's state behind the door: the caller
IS_KNOWN: Final = "is_known"
"""In a request's state behind the door: tells whether it would still pass, for answers that go on for hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What may pass."""

    callers: Callers  # knows the caller: by the socket, else by the token in `Authorization: Bearer`
    # host names a request may be addressed to, None for any. A web page that points its own name at 127.0.0.1 (DNS
    # rebinding) still sends its own name
    hosts: frozenset[str] | None = LOOPBACK_NAMES
    body_bytes_max: int = 8 * 2**20  # largest body
    body_max_s: float = 60.0  # how long a body may take to come
    bodies_bytes_max: int = 64 * 2**20  # all bodies of requests that are not answered yet, together
    # knows the caller by a browser's cookie, where it brings no token
    sessions: Sessions = field(default_factory=Sessions)
    leading: Leading = field(default_factory=Leading)  # what may be said where another scheduler leads, or may


class Gate:
    """ASGI middleware; every refusal is the API's JSON."""

    def __init__(self, app: ASGIApp, rules: GateRules) -> None:
        self._app = app
        self._rules = rules
        self._shares = Shares(rules.bodies_bytes_max)
        self._turnstile = Turnstile()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge a request, then pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answering = self._rules.leading.guarded(
            scope, receive, send, lambda: refusal_response(RefusedError.because(503, LAPSED))
        )
        try:
            headers = Headers(scope=scope)
            caller = self._judge(scope, headers)
            if (elsewhere := self._rules.leading.elsewhere(scope)) is not None:
                await elsewhere(scope, receive, send)
            elif caller is None:  # nothing that is open takes a body, so that none is read
                if await self._turnstile.wait(standing_of(scope)):
                    await self._answer(scope, receive, answering)
            else:
                with self._shares.request(caller, scope["path"]) as add:
                    has_body = scope["method"] in WITH_BODY
                    passed = await self._timely(scope, receive, add, caller) if has_body else receive
                    await self._answer(scope, passed, answering)
        except RefusedError as refused:
            if await self._turnstile.wait(standing_of(scope)):
                await refusal_response(refused)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(
            ClientDisconnect
        ):  # a client that has left before its request was complete is not answered, which is no fault of ours
            await self._app(scope, receive, send)

    def _judge(self, scope: Scope, headers: Headers) -> Caller | None:
        """Return the caller, None where the path is open to all."""
        rules, caller = self._rules, None
        if rules.hosts is not None and host_name(headers.get("host", "")) not in rules.hosts:
            raise RefusedError.because(421, "this scheduler answers to its loopback names only")
        if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_FILES):
            state = scope.setdefault("state", {})
            by = rules.callers, state.get(PEER_UID), headers.get("authorization")
            cookies = headers.get("cookie") if by[1:] == (None, None) else None
            signed_in = rules.sessions.caller(cookies)
            if signed_in is not None and scope["method"] not in READS and CSRF_HEADER not in headers:
                raise RefusedError.because(403, f"a change by a browser's session needs the header {CSRF_HEADER}")
            state[CALLER] = caller = signed_in or _caller(*by)
            is_known = partial(_is_known, caller, *by)
            state[IS_KNOWN] = is_known if signed_in is None else lambda: rules.sessions.caller(cookies) == caller
            standing_of(scope).meet(is_trusted=caller.role is not Role.USER)
        if scope["method"] in WITH_BODY:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise RefusedError.because(415, "Content-Type must be application/json")
        return caller

    async def _timely(self, scope: Scope, receive: Receive, add: Callable[[int], int], caller: Caller) -> Receive:
        try:
            async with asyncio.timeout(self._rules.body_max_s):
                return await self._body(scope, receive, add, caller)
        except TimeoutError as error:
            text = f"the body did not come within {self._rules.body_max_s:g} s"
            raise RefusedError.because(408, text) from error

    async def _body(self, scope: Scope, receive: Receive, add: Callable[[int], int], caller: Caller) -> Receive:
        """Read the whole body, within the limit, and give it to the app in one piece."""
        limit = self._rules.body_bytes_max
        is_of_agent = caller.role is not Role.USER and is_of_agents(scope["path"])
        if not is_of_agent and scope["path"] not in LARGE_PATHS:
            limit = min(limit, FORM_BYTES_MAX)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            raise _too_large(limit, scope["path"])
        chunks: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return replay([message], receive)
            chunk = message.get("body", b"")
            chunks.append(chunk)
            more = message.get("more_body", False)
            if add(len(chunk)) > limit:
                raise _too_large(limit, scope["path"])
        return replay([{"type": "http.request", "body": b"".join(chunks), "more_body": False}], receive)


def replay(messages: Iterable[Message], receive: Receive) -> Receive:
    """Return what gives these messages once more, then those that follow."""
    left = iter(messages)

    async def replayed() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return replayed


CLIENTS_TAKE_IT_FROM: Final = (
    "commands take it from COLANE_TOKEN, else from the file that colane --token-file, COLANE_TOKEN_FILE or [client] of "
    "colane.toml names"
)
"""Where a client's token comes from, in the order in which it is looked for."""


def _too_large(limit: int, path: str) -> RefusedError:
    fix = "; send fewer jobs at once" if path in LARGE_PATHS else ", the most that is taken here"
    return RefusedError.because(413, f"the body is larger than {limit} bytes{fix}")


def _caller(callers: Callers, peer_uid: int | None, header: str | None) -> Caller:
    """The caller; a token that is given counts, also over a unix socket: an agent there speaks as an agent."""
    if header is None and peer_uid is not None:
        return callers.by_uid(peer_uid)
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise RefusedError.because(401, f"a token is needed: Authorization: Bearer TOKEN ({CLIENTS_TAKE_IT_FROM})")
    known = callers.by_token(given.strip())
    if known is None and is_of_job(given.strip()):
        raise RefusedError.because(401, "the token given was a job's, and counts no longer: its attempt has ended")
    if known is None:
        raise RefusedError.because(401, f"the token given is not this scheduler's ({CLIENTS_TAKE_IT_FROM})")
    return known


def _is_known(caller: Caller, callers: Callers, peer_uid: int | None, header: str | None) -> bool:
    """Whether what was brought still stands for a caller: a token may have been revoked."""
    try:
        return _caller(callers, peer_uid, header) == caller
    except RefusedError:
        return False


def refusal_response(refused: RefusedError) -> JSONResponse:
    """Return a refusal as the API's answer."""
    headers: dict[str, str] = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    if refused.status == 503:
        headers["Retry-After"] = "1"
    if refused.lease_s is not None:
        headers[LEASE_HEADER] = repr(refused.lease_s)
    if refused.status == 408:
        headers["Connection"] = "close"
    return JSONResponse(refused.body(), refused.status, headers=headers)
