"""Small requests over connections that are kept: what schedulers and agents say to each other, at little cost.

A transport for `httpx` over `asyncio` alone: whole bodies, no proxies, no HTTP/2. A request on a kept connection that
the other side has closed meanwhile is sent once more on a new one, so every request must be safe to repeat.

It is written here, over a parser in C, because agents do little else than report, beside jobs that want the cores. A
report over a kept connection takes this client 0.23 ms of CPU time; aiohttp takes 0.43 ms, `http.client` in a thread
0.48 ms, urllib3 likewise 0.69 ms, and httpx with its own transport 3.0 ms (`benchmarks/agent_http.py`, a 2-core
machine). Their memory is much the same: 34, 35, 24, 27 and 36 MB.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

import httptools
import httpx

IDLE_MAX: Final = 64  # connections kept for later, of all hosts together; the one that has waited longest is closed

READ_BYTES: Final = 1 << 16
ANSWER_MAX_BYTES: Final = 64 * 2**20  # an answer of more is no answer of ours

Origin = tuple[str, str, int]  # scheme, host and port


def origin_of(url: httpx.URL) -> Origin:
    """Return the server requests to an address are sent to.

    Raises httpx.UnsupportedProtocol: it names no host, or none of HTTP.
    """
    if url.scheme not in {"http", "https"} or not url.host:
        raise httpx.UnsupportedProtocol(f"{url} is no address of http:// or https://")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


class Answered(NamedTuple):
    """A whole answer."""

    status: int  # its code
    headers: list[tuple[bytes, bytes]]  # as they came
    body: bytes  # without transfer coding


class _Answer:
    """What has been found of an answer so far; the parser calls back by names of its own."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.is_whole = self.is_last = False
        self.parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, part: bytes) -> None:
        self.body += part
        if len(self.body) > ANSWER_MAX_BYTES:
            raise httpx.RemoteProtocolError(f"the answer is larger than {ANSWER_MAX_BYTES} bytes")

    def on_message_complete(self) -> None:
        self.is_whole, self.is_last = True, not self.parser.should_keep_alive()  # later it cannot tell any more


@dataclass(slots=True, eq=False)
class _Connection:
    origin: Origin
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    has_been_used: bool = False

    @property
    def is_open(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()


class ClosedEarlyError(Exception):
    """The other side closed a connection before it answered."""


class KeepAliveTransport(httpx.AsyncBaseTransport):
    """A transport of httpx for small requests, over connections that are kept.

    Args:
        trusted: Servers https is spoken with.
        socket: A unix socket to go through, whatever the host.
    """

    def __init__(self, trusted: ssl.SSLContext, socket: str | None = None) -> None:
        self._trusted = trusted
        self._socket = socket
        self._idle: deque[_Connection] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its whole answer. Raises httpx.TransportError: there is none, or none in time."""
        limits = request.extensions.get("timeout", {})
        body = await request.aread()
        lines = [b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.raw_path)]
        lines += [b"%b: %b\r\n" % pair for pair in request.headers.raw]
        text = b"".join([*lines, b"\r\n", body])
        answered = await self.exchange(origin_of(request.url), text, limits)
        return httpx.Response(answered.status, headers=answered.headers, content=answered.body)

    async def exchange(self, origin: Origin, text: bytes, limits: dict[str, float | None]) -> Answered:
        """Send a request that is written already and return its whole answer.

        Args:
            origin: The server.
            text: The request, head and body; it must ask to keep the connection, and be safe to repeat.
            limits: Seconds to `connect` and to `read`, as httpx names them.

        Raises:
            httpx.TransportError: There is none, or none in time.
        """
        try:
            return await self._ask(await self._connection(origin, limits), text, limits)
        except ClosedEarlyError:
            return await self._ask_anew(origin, text, limits)

    async def aclose(self) -> None:
        """Close what is kept."""
        while self._idle:
            self._idle.pop().writer.close()

    async def _ask_anew(self, origin: Origin, text: bytes, limits: dict[str, float | None]) -> Answered:
        try:
            return await self._ask(await self._open(origin, limits), text, limits)
        except ClosedEarlyError as error:
            raise httpx.RemoteProtocolError("the connection was closed without an answer") from error

    async def _connection(self, origin: Origin, limits: dict[str, float | None]) -> _Connection:
        for connection in reversed(self._idle):
            if connection.origin == origin:
                self._idle.remove(connection)
                if connection.is_open:
                    return connection
                connection.writer.close()
                break
        return await self._open(origin, limits)

    async def _open(self, origin: Origin, limits: dict[str, float | None]) -> _Connection:
        scheme, host, port = origin
        try:
            async with asyncio.timeout(limits.get("connect")):
                if self._socket is not None:
                    streams = await asyncio.open_unix_connection(self._socket)
                else:
                    streams = await asyncio.open_connection(
                        host, port, ssl=self._trusted if scheme == "https" else None
                    )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection within {limits.get('connect')} s") from error
        except (OSError, OverflowError) as error:  # the latter for a port that is none
            raise httpx.ConnectError(str(error)) from error
        return _Connection(origin, *streams)

    async def _ask(self, connection: _Connection, text: bytes, limits: dict[str, float | None]) -> Answered:
        is_kept = False
        try:
            async with asyncio.timeout(limits.get("read")):
                connection.writer.write(text)
                await connection.writer.drain()
                answered, is_kept = await _answer(connection)
                return answered
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {limits.get('read')} s") from error
        except OSError as error:
            raise ClosedEarlyError if connection.has_been_used else httpx.ReadError(str(error)) from error
        finally:
            self._keep(connection) if is_kept else connection.writer.close()

    def _keep(self, connection: _Connection) -> None:
        connection.has_been_used = True
        self._idle.append(connection)
        if len(self._idle) > IDLE_MAX:
            self._idle.popleft().writer.close()


async def _answer(connection: _Connection) -> tuple[Answered, bool]:
    """The answer, and whether the connection may be used again."""
    found = _Answer()
    try:
        while not found.is_whole:
            part = await connection.reader.read(READ_BYTES)
            if not part:
                raise _closed(connection, found)
            found.parser.feed_data(part)
    except httptools.HttpParserError as error:
        raise httpx.RemoteProtocolError(f"the answer is no HTTP: {error}") from error
    answered = Answered(found.parser.get_status_code(), found.headers, bytes(found.body))
    return answered, not found.is_last and connection.is_open


def _closed(connection: _Connection, found: _Answer) -> Exception:
    if found.headers or not connection.has_been_used:
        return httpx.RemoteProtocolError("the connection was closed before the answer was whole")
    return ClosedEarlyError()
