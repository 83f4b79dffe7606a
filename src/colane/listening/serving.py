"""How HTTP is served by whatever listens, and what its log says of unknown callers."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colane.client.tls import TlsFiles
from colane.listening.protocol import HEADERS_MAX_S, STRANGERS_BY_TLS_MAX, BoundedProtocol
from colane.listening.seldom import Seldom
from colane.listening.standing import Standing, standing_of

BACKLOG: Final = 128
"""Connections are taken in by so many before any is judged: fewer than the descriptors that are kept."""
LINGER_S: Final = 5.0
"""For so long what follows an answer to a request that has not come to its end is thrown away: were the connection
closed meanwhile, the answer might not be read. By TLS so long is waited for a peer to agree that it is closed."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt(3)
UNUSED_MAX_BYTES: Final = 2**20  # at the end of the heap, and the least that stands apart: four reads of a connection


def bounded(app: Any, connections_max: int, **settings: Any) -> uvicorn.Config:  # noqa: ANN401 - ASGI, or none yet
    """Return how HTTP is served within limits, by a `BoundedServer`.

    Args:
        app: What answers, by ASGI.
        connections_max: Connections at a time, where the process may have as many descriptors.
        settings: More of uvicorn's.
    """
    logging.getLogger("uvicorn.error").addFilter(_SELDOM)
    return uvicorn.Config(
        app and _ClosingAnswers(app),
        http=partial(BoundedProtocol, connections_max=connections_max),  # type: ignore[arg-type]
        proxy_headers=False,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        **settings,
    )


_SELDOM: Final = Seldom({"Invalid HTTP request received."})


class BoundedServer(uvicorn.Server):
    """uvicorn, within limits also before TLS is settled: until then it knows of no connection."""

    def __init__(self, config: uvicorn.Config, tls: TlsFiles | None = None) -> None:
        """Serve by TLS where there are files for it."""
        super().__init__(config)
        self._tls = None if tls is None else tls.context()
        self._unsettled: dict[socket.socket, asyncio.Task[None]] = {}
        self._taking: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        _give_memory_back()
        await super().startup([] if self._tls else sockets)
        if self._tls:
            self._taking = [asyncio.create_task(self._take_in(each, self._tls)) for each in sockets or ()]

    def make(self) -> asyncio.Protocol:
        """Return what reads a new connection."""
        known: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return known(self.config, self.server_state, self.lifespan.state)

    async def _take_in(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        listener.setblocking(False)
        while True:
            try:
                one, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError:  # no descriptor is left
                await asyncio.sleep(1.0)
                continue
            self._unsettled[one] = asyncio.create_task(self._settle(one, tls))
            if len(self._unsettled) > STRANGERS_BY_TLS_MAX:
                longest = next(iter(self._unsettled))
                self._unsettled.pop(longest)
                with suppress(OSError):
                    longest.shutdown(socket.SHUT_RDWR)

    async def _settle(self, one: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            with suppress(OSError):  # it is no TLS, or does not come
                loop = asyncio.get_running_loop()
                limits_s = {"ssl_handshake_timeout": HEADERS_MAX_S, "ssl_shutdown_timeout": LINGER_S}
                await loop.connect_accepted_socket(self.make, one, ssl=tls, **limits_s)
        finally:
            self._unsettled.pop(one, None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more in, then wait for what is under way."""
        for each in (*self._taking, *self._unsettled.values()):
            each.cancel()
        await super().shutdown(sockets)


def _give_memory_back() -> None:
    """Have the C library give back what connections took once they end, where it is glibc.

    Else it keeps more with each large buffer that it has freed: a minute of 1,000 strangers left 23 to 57 MB, with this
    11 to 13 (`python -m tests.faults.strangers`, 2026-11-30).
    """
    with suppress(AttributeError, OSError):
        for each in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(each, UNUSED_MAX_BYTES)


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
