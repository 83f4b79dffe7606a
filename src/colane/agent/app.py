"""The agent's REST API: a nudge, the jobs' logs, its health."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from colane.agent.jobdir import StateDir
from colane.agent.logs import READ_MAX_BYTES, read_log
from colane.agent.reconcile import Key

NEXT_OFFSET = "X-Colane-Next-Offset"
OPEN_PATH = "/health"
_ID = re.compile(r"[0-9]{1,16}", re.ASCII)


class SecretGate:
    """Lets only callers with the secret in, which the scheduler was told; the health is anybody's."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._expected = f"Bearer {secret}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it."""
        gate = self._app if self._lets_in(scope) else _refuse_stranger()
        await gate(scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["path"] == OPEN_PATH:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return secrets.compare_digest(given, self._expected)


def make_app(state: StateDir, wake: Callable[[], None], *, name: str, secret: str) -> Starlette:
    """Build the API.

    Args:
        state: Where the logs are.
        wake: Called for each nudge.
        name: The node's name.
        secret: Demanded of every caller.
    """

    async def run(_: Request) -> Response:
        wake()
        return JSONResponse({"accepted": True})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "node": name, "jobs": len(state.live())})

    async def log(request: Request) -> Response:
        numbers = [request.path_params[name] for name in ("job", "attempt")]
        if not all(_ID.fullmatch(number) for number in numbers):
            return _error(404, "there is no such log: ids have at most 16 digits")
        key = Key(*map(int, numbers))
        return await run_in_threadpool(_answer_log, state, key, request.query_params)

    routes = [
        Route("/run", run, methods=["GET", "POST"]),
        Route("/log/{job}/{attempt}", log),
        Route(OPEN_PATH, health),
    ]
    return Starlette(routes=routes, middleware=[Middleware(SecretGate, secret=secret)])


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


def _number(query: Mapping[str, str], field: str, default: int) -> int:
    text = query.get(field, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{field} must be a whole number, got {text!r}") from error


def _refuse_stranger() -> Response:
    return _error(401, "only this node's scheduler may ask")


def _error(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status_code=status)
