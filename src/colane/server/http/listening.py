"""Where the scheduler listens: TCP, and a unix socket at which the kernel names the user that connects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from colane.client.tls import TlsFiles
from colane.listening.protocol import CONNECTIONS_MAX
from colane.listening.serving import BACKLOG, BoundedServer, bounded
from colane.server.service import Service

SHUTDOWN_S: Final = 5  # requests under way get this long when the scheduler is told to stop

SOCKET_FILE: Final = "socket"
SOCKET_MODE: Final = 0o666  # all that can reach the directory may connect: the user decides what is allowed
PATH_BYTES_MAX: Final = 107  # what the kernel takes as a socket's path (unix(7))

log = logging.getLogger(__name__)


class ListenError(Exception):
    """It is not possible to listen there; the message is one line that names the fix."""


def raise_descriptor_limit() -> None:
    """Let this process have as many connections as it may; the usual soft limit of 1,024 is for users of select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


def uvicorn_config(app: Any) -> uvicorn.Config:  # noqa: ANN401 - ASGI, or none yet
    """Return how HTTP is served."""
    return bounded(app, CONNECTIONS_MAX, timeout_graceful_shutdown=SHUTDOWN_S)


class ApiServer(BoundedServer):
    """One with our word once it listens and streams ended before it waits for connections to close."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        announce: Callable[[], None],
        local: socket.socket | None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Serve at `local`, always plain, beside the sockets given to `serve`, by TLS where there are files for it."""
        super().__init__(config, tls)
        self._local = local
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self._local is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(await loop.create_unix_server(self.make, sock=self._local, backlog=BACKLOG))
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what streams, then wait for what is under way."""
        await self._service.grants.farewell()
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
