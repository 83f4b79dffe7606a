"""HTTP on one connection: how much may come before its caller is known, for how long, and which makes room."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from colane.listening.standing import PEER_UID, STANDING, Standing

KEEP_ALIVE_S: Final = 75
"""Longer than any period of an agent or a client, so that a pooled connection is not closed under a request."""
STRANGERS_KEEP_ALIVE_S: Final = 10  # the same for those on which no caller that is known has asked

HEADERS_MAX_S: Final = 20.0  # from the connection, or from the first byte of a request, to the end of its headers
REQUEST_MAX_S: Final = 90.0  # from there to its end: longer than the door waits for a body, which it says

FRAME_MAX_BYTES: Final = 32 * 1024
"""Of one request, all that is not its body: first line, headers, what stands between the pieces of a body, trailers.
It is kept in memory before the caller is known, beyond at most what is read at once (256 KiB)."""
HEADERS_MAX: Final = 128  # of one request: each takes 200 bytes beyond its text
BODY_MAX_BYTES: Final = 16 * 2**20  # of one request, whether or not it is read: the door says what it takes
PIPELINED_MAX: Final = 8
"""Requests that have come on a connection before the one ahead of them is answered; none of our clients sends any."""

DESCRIPTORS_KEPT: Final = 256
"""Of those that the process may have: for its store and logs, for calling agents, and for connections that were taken
in but not judged. Under a low limit half are kept."""
CONNECTIONS_MAX: Final = 16_384
STRANGERS_MAX: Final = 512  # connections on which no caller that is known has asked
STRANGERS_BY_TLS_MAX: Final = 128
"""The same where each takes 256 KiB for TLS; and so many more of which TLS is not settled yet."""


class _TooMuchError(Exception):
    """A request goes beyond what may come; the parser makes a refusal of it."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP that knows the user at the other end of a unix socket, bounds what comes and for how long, and has room.

    Where there are too many connections, one on which nothing is asked is closed, the one that has been still for
    longest: of the strangers' where they have too many, of its own peer where that has half of all, else of any.
    Clients open another when they next ask. Agents' and operators' connections are not closed for others.
    """

    _patience: asyncio.TimerHandle | None = None
    _answered: RequestResponseCycle | None = None
    _has_headers = False
    _headers = 0
    _headers_bytes = 0
    _frame_bytes = 0
    _body_bytes = 0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connections_max = connections_max

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the kernel, once for a connection."""
        super().connection_made(transport)
        self._be_patient(HEADERS_MAX_S)
        uid = peer_uid(transport)
        self.still_since_s = self.loop.time()
        self.peer: object = uid if self.client is None else self.client[0]
        self.standing = Standing()
        self.app_state = {**self.app_state, STANDING: self.standing}
        if uid is not None:
            self.app_state[PEER_UID] = uid
        self._make_room(room_for_connections(self._connections_max))

    def _make_room(self, room: int) -> None:
        """Close a connection where there are more than there is room for, or too many of this one's peer."""
        strangers_max = min(STRANGERS_BY_TLS_MAX if self.scheme == "https" else STRANGERS_MAX, max(room // 2, 1))
        if len(self.connections) <= strangers_max:
            return
        known = cast("set[BoundedProtocol]", self.connections)
        others = [each for each in known if not each.transport.is_closing()]  # those go in this turn of the loop
        strangers = [each for each in others if not each.standing.is_known]
        fleeting = [each for each in others if not each.standing.is_trusted]
        own = [each for each in fleeting if each.peer == self.peer]
        if len(strangers) > strangers_max:
            self._close_one(strangers, asking_too=True)  # theirs are short, if they are honest
        elif len(own) > room // 2:
            self._close_one(own)
        elif len(others) > room:
            self._close_one(fleeting)

    def _close_one(self, crowd: list[BoundedProtocol], *, asking_too: bool = False) -> None:
        found = [each for each in crowd if (asking_too or each.is_still) and each is not self]
        order = sorted(found, key=lambda each: (not each.is_still, each.still_since_s))
        (order[0] if order else self).transport.abort()

    @property
    def is_still(self) -> bool:
        """Whether nothing is asked on it."""
        return self.cycle is None or self.cycle.response_complete or self.standing.is_left

    def data_received(self, data: bytes) -> None:
        """Take in what has come; a client that sends too much is dropped."""
        body_before = self._body_bytes
        super().data_received(data)
        if self.standing.is_whole:
            self._frame_bytes = 0
            return
        body = max(self._body_bytes - body_before, 0)
        self._frame_bytes = max(self._frame_bytes + len(data) - 2 * body, 0)  # pieces may be as small as what is around
        if self._frame_bytes > FRAME_MAX_BYTES or self._body_bytes > BODY_MAX_BYTES:
            self._end_patience()
            self.transport.abort()

    def on_message_begin(self) -> None:
        """A request has begun: its headers must follow."""
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _TooMuchError
        super().on_message_begin()
        self._has_headers = self.standing.is_whole = False
        self._frame_bytes = self._body_bytes = self._headers = self._headers_bytes = 0
        self.still_since_s = self.loop.time()
        self._be_patient(HEADERS_MAX_S)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what comes as one behind a body is thrown away."""
        self._headers += 1
        self._headers_bytes += len(name) + len(value)
        if self._headers > HEADERS_MAX or self._headers_bytes > FRAME_MAX_BYTES:
            raise _TooMuchError
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """They have come: so must the rest."""
        self._has_headers = True
        self._be_patient(REQUEST_MAX_S)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401 - ASGI
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Count it, whether or not it is read."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it has come."""
        self.standing.is_whole = True
        self._end_patience()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Hang up behind it: TLS that is closed in order reads on until its peer closes it too."""
        super().send_400_response(msg)
        self.loop.call_soon(self.transport.abort)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer it as if no upgrade were asked for, and log nothing: any stranger may ask."""

    def on_response_complete(self) -> None:
        """Wait for the next request, of a stranger not for long."""
        self.timeout_keep_alive = KEEP_ALIVE_S if self.standing.is_known else STRANGERS_KEEP_ALIVE_S
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close it, at once where its answer is not taken."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for what was to come, and give up what no client waits for any more."""
        self._end_patience()
        self.standing.leave()
        if self._answered is not None:  # uvicorn looks at the last request alone, and others may have come behind it
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _be_patient(self, wait_s: float) -> None:
        self._end_patience()
        self._patience = self.loop.call_later(wait_s, self.transport.close)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def room_for_connections(most: int = CONNECTIONS_MAX) -> int:
    """Return how many connections there may be, so that descriptors are left for all else."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(max(allowed - DESCRIPTORS_KEPT, allowed // 2), most)


def peer_uid(transport: asyncio.Transport) -> int | None:
    """Return the user of the process at the other end of a unix socket (SO_PEERCRED), None for other sockets."""
    known = transport.get_extra_info("socket")
    if known is None or known.family != socket.AF_UNIX:
        return None
    with socket.socket(fileno=socket.dup(known.fileno())) as link:
        return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
