"""A scheduler and an agent in processes of their own, at which callers misbehave."""

from __future__ import annotations

import math
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.agent.agents import AGENT
from tests.agent.waiting import until
from tests.certificates import own_certificate
from tests.listening.kinds import JSON
from tests.server.processes import DEADLINE_S, Scheduler, scheduler
from tests.warm import Warm


@dataclass
class Listener:
    """What listens at an address: its process, and where that writes its log."""

    name: str
    pid: int
    address: tuple[str, int] | str
    log: Path
    tls: ssl.SSLContext | None = None

    def connect(self) -> socket.socket:
        """Open a connection, settled where it is by TLS."""
        one = self.reach()
        return one if self.tls is None else self.tls.wrap_socket(one, server_hostname="127.0.0.1")

    def reach(self) -> socket.socket:
        """Open a connection, and say nothing on it."""
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        one = socket.socket(family)
        one.connect(self.address)  # waits for a place in the queue, which one with a time limit does not
        one.settimeout(DEADLINE_S)
        return one

    def ask(self, method: str, path: str, more: str = "") -> int:
        """Return the status of the answer to a request on a connection of its own."""
        with self.connect() as one:
            one.sendall(f"{method} {path} HTTP/1.1\r\n{JSON}{more}\r\n".encode())
            return status_on(one)

    def memory_bytes(self) -> int:
        """Return how much of the process is in memory."""
        line = next(each for each in Path(f"/proc/{self.pid}/status").read_text().splitlines() if "VmRSS" in each)
        return int(line.split()[1]) * 1024

    def threads(self) -> int:
        """Return how many threads it has."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))


def status_on(one: socket.socket) -> int:
    """Return the status of the next answer on a connection, 0 where that is closed without one."""
    data, whole = b"", math.inf
    while len(data) < whole:
        try:
            part = one.recv(65536)
        except ConnectionError:
            return 0
        if not part:
            return 0
        data += part
        head, is_there, _ = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        whole = math.inf if not is_there else len(head) + 4 + (int(length[1]) if length else 0)
    return int(data.split(b" ", 2)[1])


@dataclass
class Listeners:
    """All that listens in a cluster of one node."""

    running: Scheduler
    tcp: Listener
    unix: Listener
    agent: Listener

    def of(self, name: str) -> Listener:
        """Return one by name."""
        found: Listener = getattr(self, {"tls": "tcp", "tls agent": "agent"}.get(name, name))
        return found


@contextmanager
def cluster(folder: Path, before: str = "", *, by_tls: bool = False) -> Iterator[Listeners]:
    """Start a scheduler and an agent; `before` is run in both first."""
    files = own_certificate(folder) if by_tls else None
    with ExitStack() as stack:
        settings, more, context = dict[str, list[str]](), "", None
        if files is not None:
            stack.enter_context(patch.dict(os.environ, COLANE_CA_FILE=str(files.cert)))
            settings["tls"] = [str(files.cert), str(files.key)]
            more = f"tls=TlsFiles(Path({str(files.cert)!r}), Path({str(files.key)!r})), "
            context = ssl.create_default_context(cafile=str(files.cert))
        running = stack.enter_context(scheduler(folder / "state", before=before, **settings))
        host, _, port = running.url.partition("://")[2].partition(":")
        log = folder / "agent.log"
        words = [running.url, str(folder / "agent"), "0.5"]
        own = f"token={running.token!r}, reports_others=False, {more}grace_s="
        code = f"{before}from colane.client.tls import TlsFiles\n{AGENT.replace('grace_s=', own)}"
        agent = Warm(code, words, log, log)
        try:
            nodes = until(lambda: running.http.get("/nodes").json(), "the node joins")
            where, _, at = nodes[0]["address"].partition("://")[2].partition(":")
            yield Listeners(
                running,
                Listener("tcp", running.process.pid, (host, int(port)), Path(running.error_file.name), context),
                Listener("unix", running.process.pid, str(folder / "state" / "socket"), Path(running.error_file.name)),
                Listener("agent", agent.pid, (where, int(at)), log, context),
            )
        finally:
            agent.kill()
            agent.wait(DEADLINE_S)
