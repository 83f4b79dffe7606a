"""What lies between a scheduler and its store: it cuts connections where it is told to, and delivers late."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

CHUNK_BYTES = 1 << 20


class Cut(StrEnum):
    """Where a connection ends: its server has not been asked, or its answer comes in part, or not at all."""

    BEFORE = "before"
    WITHIN = "within"
    AFTER = "after"
    LATE = "late"
    """As BEFORE, and what was asked is delivered once `deliver` is called."""


class Proxy:
    """Listens at a socket's path, and passes on to another.

    Attributes:
        mark: Requests that hold these bytes are commits.
        cut: What becomes of the next commit; None passes it on.
        met: How many commits were cut.
        is_parted: Whether nothing gets through.
    """

    def __init__(self, path: Path, server: Path, mark: bytes) -> None:
        self.mark = mark
        self.cut: Cut | None = None
        self.met = 0
        self.is_parted = False
        self._server = server
        self._held: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def deliver(self) -> None:
        """Let what was held reach the server now, and wait until it has answered."""
        held, self._held = self._held, []
        for server, request in held:
            server.sendall(request)
            assert server.recv(CHUNK_BYTES), "the server has made it"
            server.close()

    def part(self) -> None:
        """Let nothing through until `is_parted` is unset."""
        self.is_parted = True
        for each in self._open:
            _end(each)

    def close(self) -> None:
        """End all connections."""
        for each in [self._listener, *self._open]:
            _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_parted:
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                self._open += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on what either side says, until one hangs up or a commit is cut."""
        with contextlib.suppress(OSError, ValueError):  # of a socket that the other end of a test has closed
            while True:
                readable, _, _ = select.select([client, server], [], [])
                if server in readable:
                    if not (answer := server.recv(CHUNK_BYTES)):
                        break
                    client.sendall(answer)
                elif not (request := client.recv(CHUNK_BYTES)):
                    break
                elif self.cut is None or self.mark not in request:
                    server.sendall(request)
                else:
                    server = self._cut_off(request, client, server)
                    break
        _end(client)
        _end(server)

    def _cut_off(self, request: bytes, client: socket.socket, server: socket.socket) -> socket.socket:
        """Do what `cut` says; return the socket that is to be closed."""
        cut, self.cut = self.cut, None
        self.met += 1
        if cut is Cut.LATE:
            held = socket.socket(fileno=server.detach())
            self._held.append((held, request))
        if cut in {Cut.WITHIN, Cut.AFTER}:
            server.sendall(request)
            answer = server.recv(CHUNK_BYTES)
            client.sendall(answer[: len(answer) // 2 if cut is Cut.WITHIN else 0])
        return server


def _end(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextlib.contextmanager
def proxy(path: Path, server: Path, mark: bytes) -> Iterator[Proxy]:
    """A proxy that ends."""
    made = Proxy(path, server, mark)
    try:
        yield made
    finally:
        made.close()
