"""A real scheduler and a real agent that can be killed at any moment, and jobs that tell what happens to them."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from colane.agent.launch.gang import find_port
from colane.client.client import Client
from colane.client.errors import SchedulerUnreachable
from colane.core.config import CoreConfig
from tests.warm import Warm

SERVER = """
import json, sys
from pathlib import Path
from colane.core.config import CoreConfig
from colane.server.config import ServerConfig
from colane.server.main import run_server
run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=int(sys.argv[2]), policy=sys.argv[3],
                        node_timeout_s=float(sys.argv[4]), token="faults",
                        core=CoreConfig(protection_factor=float(sys.argv[5]), gang_ports=(int(sys.argv[6]),) * 2,
                                        guard_after_s=float(sys.argv[7]), **json.loads(sys.argv[8]))))
"""
AGENT = """
import json, sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name=sys.argv[4], scheduler_url=sys.argv[2], state_dir=Path(sys.argv[1]), devices=sys.argv[3],
                      heartbeat_s=0.5, grace_s=1.0, token="faults", reports_others=False,
                      **json.loads(sys.argv[5])))
"""
TOKEN = "faults"
WAIT_MAX_S = 150.0
"""A busy machine starts a scheduler in half a minute; a hang is told from that by this."""


class Cluster:
    """One scheduler, one agent, and a pipe on which jobs report."""

    def __init__(
        self,
        folder: Path,
        policy: str,
        devices: str,
        node_timeout_s: float = 30.0,
        protection_factor: float = CoreConfig().protection_factor,
        guard_after_s: float = CoreConfig().guard_after_s,
        core: Mapping[str, object] | None = None,
        **agents: object,
    ) -> None:
        self.folder = folder
        # Of its own, as other tests run on this machine meanwhile: its scheduler's, also while that is down, and the
        # one at which the processes of a job over two nodes meet.
        self.port = find_port(frozenset())
        gang_port = find_port(frozenset({self.port}))
        self.url = f"http://127.0.0.1:{self.port}"
        self.policy = policy
        self.devices = devices
        self._agents = agents
        """More settings of each agent."""
        self.settings = [str(node_timeout_s), str(protection_factor), str(gang_port), str(guard_after_s)]
        self.settings.append(json.dumps(core or {}))
        self.pipe = folder / "told"
        os.mkfifo(self.pipe)
        self._told = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        self._lines: deque[str] = deque()
        self._rest = b""
        self.processes: dict[str, Warm] = {}
        self._client = Client(self.url, TOKEN, timeout_s=60.0)

    def start(self, name: str, **more: object) -> None:
        """Start the `server`, an `agent` (`node-1`), `agent-2` (`node-2`), ..., this one with more settings."""
        args = [SERVER, str(self.folder / "server"), str(self.port), self.policy, *self.settings]
        if name != "server":
            node, settings = f"node-{name.partition('-')[2] or 1}", json.dumps({**self._agents, **more})
            args = [AGENT, str(self.folder / name), self.url, self.devices, node, settings]
        log = self.folder / f"{name}.log"
        self.processes[name] = Warm(args[0], args[1:], log, log)

    def kill(self, name: str) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, such as the one that freezes a process."""
        self.processes[name].send_signal(number)

    def told(self, deadline_s: float = WAIT_MAX_S) -> Iterator[str]:
        """Lines that jobs write, as they come; ends when none has come for `deadline_s`."""
        while True:
            while self._lines:
                yield self._lines.popleft()
            ready, _, _ = select.select([self._told], [], [], deadline_s)
            if not ready:
                return
            *lines, self._rest = (self._rest + os.read(self._told, 65536)).split(b"\n")
            self._lines.extend(line.decode() for line in lines)

    def until(self, seen: Callable[[], bool]) -> None:
        """Look until it is so."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not seen():
            assert time.monotonic() < deadline_s, self.logs()
            select.select([], [], [], 0.05)

    def client(self) -> Client:
        """A client, once the scheduler answers."""
        deadline = time.monotonic() + WAIT_MAX_S
        while True:
            try:
                self._client.health()
            except SchedulerUnreachable:
                assert time.monotonic() < deadline, self.logs()
                select.select([], [], [], 0.02)
            else:
                return self._client

    def logs(self) -> str:
        """What scheduler and agents said."""
        return "\n".join(log.read_text() for log in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        self._client.close()
        os.close(self._told)
