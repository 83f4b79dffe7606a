"""The agent's REST API: a nudge, the jobs' logs, stacks and terminals, its health."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from colane.agent.files.jobdir import StateDir
from colane.agent.files.logs import READ_MAX_BYTES, read_log
from colane.agent.reconcile import Key
from colane.agent.running import stacks
from colane.agent.running.terminals import TypedWords, at_terminal
from colane.api.stacks import RawStacksAnswer
from colane.client.hosts import LOOPBACK_NAMES, host_name
from colane.listening.standing import Turnstile, standing_of

NEXT_OFFSET = "X-Colane-Next-Offset"
OPEN_PATH = "/health"
_ID = re.compile(r"[0-9]{1,16}", re.ASCII)


class SecretGate:
    """Lets only callers with the secret in, which the scheduler was told; the health is open to all.

    Where it listens on loopback, requests must name it so: a web page that points its own name there sends its own.
    """

    def __init__(self, app: ASGIApp, secret: str, *, on_loopback: bool = False) -> None:
        self._app = app
        self._expected = f"Bearer {secret}".encode()
        self._on_loopback = on_loopback
        self._turnstile = Turnstile()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if scope["type"] == "http" and not await self._turnstile.wait(standing_of(scope)):
            return
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if self._on_loopback and host_name(headers.get("host", "")) not in LOOPBACK_NAMES:
            return _error(421, "this agent answers to its loopback names only")
        if scope["path"] == OPEN_PATH:
            return None
        if not secrets.compare_digest(headers.get("authorization", "").encode("latin-1"), self._expected):
            return _error(401, "only this node's scheduler may ask")
        standing_of(scope).meet(is_trusted=True)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            return _error(415, "Content-Type must be application/json")
        return None


def make_app(
    state: StateDir, wake: Callable[[], None], *, name: str, secret: str, on_loopback: bool = False
) -> Starlette:
    """Build the API.

    Args:
        state: Where the logs are.
        wake: Called for each nudge.
        name: The node's name.
        secret: Demanded of every caller.
        on_loopback: Whether only this machine reaches it, by the names of loopback.
    """

    async def run(_: Request) -> Response:
        wake()
        return JSONResponse({"accepted": True})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "node": name, "jobs": len(state.live())})

    async def log(request: Request, key: Key) -> Response:
        return await run_in_threadpool(_answer_log, state, key, request.query_params)

    async def terminal(request: Request, key: Key) -> Response:
        try:
            said = TypedWords.read(await request.body())
            part = await at_terminal(state.find(key), said)
        except FileNotFoundError:
            return _error(404, f"job {key.job}, attempt {key.attempt}, has no terminal on this node")
        except ValueError as error:
            return _error(422, str(error))
        headers = {NEXT_OFFSET: str(part.next_offset)}
        return Response(part.data, media_type="application/octet-stream", headers=headers)

    async def stacks_of(_: Request, key: Key) -> Response:
        return await run_in_threadpool(_answer_stacks, state, key)

    routes = [
        Route("/run", run, methods=["GET", "POST"]),
        Route("/log/{job}/{attempt}", _of_attempt(log)),
        Route("/stacks/{job}/{attempt}", _of_attempt(stacks_of)),
        Route("/terminal/{job}/{attempt}", _of_attempt(terminal), methods=["POST"]),
        Route(OPEN_PATH, health),
    ]
    return Starlette(routes=routes, middleware=[Middleware(SecretGate, secret=secret, on_loopback=on_loopback)])


def _of_attempt(answer: Callable[[Request, Key], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Take the attempt that is asked about from the path."""

    async def read(request: Request) -> Response:
        numbers = [request.path_params[name] for name in ("job", "attempt")]
        if not all(_ID.fullmatch(number) for number in numbers):
            return _error(404, "there is no such job: ids have at most 16 digits")
        return await answer(request, Key(*map(int, numbers)))

    return read


def _answer_log(state: StateDir, key: Key, query: Mapping[str, str]) -> Response:
    directory = state.find(key)
    if directory is None:
        return _error(404, f"this node has no log of job {key.job}, attempt {key.attempt}")
    try:
        offset, limit = _number(query, "offset", 0), _number(query, "limit", READ_MAX_BYTES)
    except ValueError as error:
        return _error(422, str(error))
    part = read_log(directory, offset, limit)
    headers = {NEXT_OFFSET: str(part.next_offset)}
    return Response(part.data, media_type="application/octet-stream", headers=headers)


def _answer_stacks(state: StateDir, key: Key) -> Response:
    try:
        answer: RawStacksAnswer = {"processes": stacks.ask(state.job_dir(key))}
    except FileNotFoundError:
        return _error(404, f"no process of job {key.job}, attempt {key.attempt}, runs on this node")
    return JSONResponse(answer)


def _number(query: Mapping[str, str], field: str, default: int) -> int:
    text = query.get(field, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{field} must be a whole number, got {text!r}") from error


def _error(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status_code=status)
