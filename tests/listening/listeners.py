"""A scheduler and an agent in processes of their own, at which callers misbehave."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.agent.agents import AGENT
from tests.agent.waiting import until
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

    def connect(self) -> socket.socket:
        """Open a connection."""
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
        found: Listener = getattr(self, name)
        return found


@contextmanager
def cluster(folder: Path, before: str = "") -> Iterator[Listeners]:
    """Start a scheduler and an agent; `before` is run in both first."""
    with scheduler(folder / "state", before=before) as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        log = folder / "agent.log"
        words = [running.url, str(folder / "agent"), "0.5"]
        code = before + AGENT.replace("grace_s=", f"token={running.token!r}, reports_others=False, grace_s=")
        agent = Warm(code, words, log, log)
        try:
            nodes = until(lambda: running.http.get("/nodes").json(), "the node joins")
            where, _, at = nodes[0]["address"].removeprefix("http://").partition(":")
            yield Listeners(
                running,
                Listener("tcp", running.process.pid, (host, int(port)), Path(running.error_file.name)),
                Listener("unix", running.process.pid, str(folder / "state" / "socket"), Path(running.error_file.name)),
                Listener("agent", agent.pid, (where, int(at)), log),
            )
        finally:
            agent.kill()
            agent.wait(DEADLINE_S)
