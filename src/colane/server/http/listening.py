"""Where the scheduler listens: TCP, and a unix socket at which the kernel names the user that connects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from colane.client.tls import TlsFiles
from colane.server.http.door import PEER_UID, STANDING, Standing
from colane.server.service import Service

BACKLOG: Final = 128
"""Connections are taken in by so many before any is judged: fewer than the descriptors that are kept."""
KEEP_ALIVE_S: Final = 75
"""Longer than any period of an agent or a client, so that a pooled connection is not closed under a request."""

SHUTDOWN_S: Final = 5
"""Requests under way get this long when the scheduler is told to stop."""

HEADERS_MAX_S: Final = 20.0
"""From the connection, or from the first byte of a request, to the end of its headers."""

HEADERS_MAX_BYTES: Final = 64 * 1024
"""Of one request, beyond what came with its first bytes (at most 256 KiB, what asyncio reads at once): they are kept
in memory before the caller is known."""

DESCRIPTORS_KEPT: Final = 256
"""Of those that the process may have: for its store and logs, for calling agents, and for connections that were taken
in but not judged. Under a low limit half are kept."""
CONNECTIONS_MAX: Final = 16_384

SOCKET_FILE: Final = "socket"
SOCKET_MODE: Final = 0o666
"""All that can reach the directory may connect: the user decides what is allowed."""
PATH_BYTES_MAX: Final = 107
"""What the kernel takes as a socket's path (unix(7))."""

log = logging.getLogger(__name__)


class ListenError(Exception):
    """It is not possible to listen there; the message is one line that names the fix."""


class PeerProtocol(HttpToolsProtocol):
    """HTTP that knows the user at the other end of a unix socket, bounds the wait for headers, and has room.

    Where there are too many connections, one on which nothing is asked is closed, the one that has been still for
    longest: of its own peer where that has half of all, else of any. Clients open another when they next ask. Agents'
    and operators' connections are not closed for others.
    """

    _patience: asyncio.TimerHandle | None = None
    _headers_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel, once for a connection."""
        super().connection_made(transport)
        self._be_patient()
        uid = peer_uid(transport)
        self.still_since_s = self.loop.time()
        self.peer: object = uid if self.client is None else self.client[0]
        self.standing = Standing()
        self.app_state = {**self.app_state, STANDING: self.standing}
        if uid is not None:
            self.app_state[PEER_UID] = uid
        self._make_room(room_for_connections())

    def _make_room(self, room: int) -> None:
        """Close a connection where there are more than there is room for, or too many of this one's peer."""
        if len(self.connections) <= room // 2:
            return
        known = cast("set[PeerProtocol]", self.connections)
        others = [each for each in known if not each.transport.is_closing()]  # those go in this turn of the loop
        fleeting = [each for each in others if not each.standing.is_trusted]
        own = [each for each in fleeting if each.peer == self.peer]
        crowd = own if len(own) > room // 2 else fleeting
        if len(own) > room // 2 or len(others) > room:
            still = [each for each in crowd if each.is_still and each is not self]
            victim = min(still, key=lambda each: each.still_since_s, default=self)
            victim.transport.abort()

    @property
    def is_still(self) -> bool:
        """Whether nothing is asked on it."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take in what has come; a client that sends headers for too long is dropped."""
        awaited = self._patience
        super().data_received(data)
        if awaited is not None and self._patience is awaited:
            self._headers_bytes += len(data)
            if self._headers_bytes > HEADERS_MAX_BYTES:
                self._end_patience()
                self.transport.abort()

    def on_message_begin(self) -> None:
        """A request has begun: its headers must follow."""
        super().on_message_begin()
        self.still_since_s = self.loop.time()
        self._be_patient()

    def on_headers_complete(self) -> None:
        """They have come."""
        self._end_patience()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for headers, and give up what no client waits for any more."""
        self._end_patience()
        self.standing.leave()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        self._end_patience()
        self._headers_bytes = 0
        self._patience = self.loop.call_later(HEADERS_MAX_S, self.transport.close)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def raise_descriptor_limit() -> None:
    """Let this process have as many connections as it may; the usual soft limit of 1,024 is for users of select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def room_for_connections() -> int:
    """Return how many connections there may be, so that descriptors are left for all else."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(max(most - DESCRIPTORS_KEPT, most // 2), CONNECTIONS_MAX)


def peer_uid(transport: asyncio.Transport) -> int | None:
    """Return the user of the process at the other end of a unix socket (SO_PEERCRED), None for other sockets."""
    known = transport.get_extra_info("socket")
    if known is None or known.family != socket.AF_UNIX:
        return None
    with socket.socket(fileno=socket.dup(known.fileno())) as link:
        return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def listen_tcp(host: str, port: int) -> socket.socket:
    """Listen at an address of this machine; port 0 takes a free one.

    Raises:
        ListenError: Another process does, or there is no such address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        hint = "; choose another --port, 0 for any" if error.errno else ""
        raise ListenError(f"port: cannot listen on {host}:{port}: {error.strerror}{hint}") from error


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Return the URL at which this machine reaches an address that is listened at."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"


def listen_unix(path: Path) -> socket.socket | None:
    """Listen at a path, in the place of a scheduler that is gone; None where the path is longer than sockets' may be.

    Raises:
        ListenError: Nothing can be made there.
    """
    if len(bytes(path)) > PATH_BYTES_MAX:
        log.warning("%s is too long a path for a socket: commands use TCP and the token instead", path)
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"state: {path} cannot be made: {error.strerror}") from error
    return listener


def _is_no_broken_off_request(record: logging.LogRecord) -> bool:
    """Requests that the end cuts off are counted in one line, and are no error each; their clients ask again."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def uvicorn_config(app: Any, tls: TlsFiles | None = None) -> uvicorn.Config:  # noqa: ANN401 - ASGI, or none yet
    """Return how HTTP is served: over TCP by TLS where there are files for it, over the unix socket always plain."""
    return uvicorn.Config(
        app,
        http=PeerProtocol,
        proxy_headers=False,
        ws="none",
        ssl_certfile=None if tls is None else str(tls.cert),
        ssl_keyfile=None if tls is None else str(tls.key),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


class ApiServer(uvicorn.Server):
    """uvicorn, with our word once it listens and streams ended before it waits for connections to close."""

    def __init__(
        self, config: uvicorn.Config, service: Service, announce: Callable[[], None], local: socket.socket | None
    ) -> None:
        """Serve at `local` beside the sockets given to `serve`."""
        super().__init__(config)
        self._local = local
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self._local is not None:
            self.servers.append(await self._serve_local(self._local))
        self._announce()

    async def _serve_local(self, listener: socket.socket) -> asyncio.Server:
        make = partial(PeerProtocol, self.config, self.server_state, self.lifespan.state)
        return await asyncio.get_running_loop().create_unix_server(make, sock=listener, backlog=BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what streams, then wait for what is under way."""
        await self._service.farewell()
        self._service.end_streams()
        logging.getLogger("uvicorn.error").addFilter(_is_no_broken_off_request)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM; unlike uvicorn's own, do not raise them again before we have cleaned up."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.handle_exit(number, frame)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
