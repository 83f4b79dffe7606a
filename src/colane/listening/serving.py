"""How HTTP is served by whatever listens, and what its log says of unknown callers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colane.client.tls import TlsFiles
from colane.listening.protocol import BoundedProtocol
from colane.listening.seldom import Seldom
from colane.listening.standing import Standing, standing_of

BACKLOG: Final = 128
"""Connections are taken in by so many before any is judged: fewer than the descriptors that are kept."""
LINGER_S: Final = 5.0
"""For so long what follows an answer to a request that has not come to its end is thrown away: were the connection
closed meanwhile, the answer might not be read."""


def bounded(app: Any, connections_max: int, tls: TlsFiles | None = None, **settings: Any) -> uvicorn.Config:  # noqa: ANN401 - ASGI, or none yet
    """Return how HTTP is served within limits: by TLS where there are files for it.

    Args:
        app: What answers, by ASGI.
        connections_max: Connections at a time, where the process may have as many descriptors.
        tls: Its certificate and key.
        settings: More of uvicorn's.
    """
    logging.getLogger("uvicorn.error").addFilter(_SELDOM)
    return uvicorn.Config(
        app and _ClosingAnswers(app),
        http=partial(BoundedProtocol, connections_max=connections_max),  # type: ignore[arg-type]
        proxy_headers=False,
        ws="none",
        ssl_certfile=None if tls is None else str(tls.cert),
        ssl_keyfile=None if tls is None else str(tls.key),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        **settings,
    )


_SELDOM: Final = Seldom({"Invalid HTTP request received."})


class _ClosingAnswers:
    """Answers to a request that has not come to its end close its connection, once its caller could read them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        standing = standing_of(scope)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                standing.is_left = not standing.is_whole
                if standing.is_left:
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif standing.is_left and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _throw_away(standing, receive)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, receive, sending)


async def _throw_away(standing: Standing, receive: Receive) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while not standing.is_whole and not standing.is_gone:
                await receive()
