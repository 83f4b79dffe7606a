"""Machines that can be cut off, frozen and switched off: network, process and mount namespaces, and real processes.

A scheduler and agents each have a network of their own, with one wire from each agent to the scheduler and none to
anywhere else. A machine's processes are in a process namespace: switched off, all of them are gone at once, and after
that it has another boot id.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from colane.client.client import Client

from .cluster import WAIT_MAX_S

TOKEN = "faults"
PORT = 8642
DISK = "8m"
SERVER = """
import sys
from pathlib import Path
from colane.core.config import CoreConfig
from colane.server.config import ServerConfig
from colane.server.main import run_server
run_server(ServerConfig(state_dir=Path(sys.argv[1]), host="0.0.0.0", port=int(sys.argv[2]), policy=sys.argv[5],
                        node_timeout_s=float(sys.argv[3]), token="faults",
                        core=CoreConfig(node_losses_max=int(sys.argv[4]))))
"""
AGENT = """
import os, sys
from pathlib import Path
os.sched_getaffinity = lambda _: set(range(16))  # machines have room for many jobs, whatever this one has
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name=sys.argv[1], scheduler_url=sys.argv[2], state_dir=Path(sys.argv[3]), devices="cpu:1:1GB",
                      host=sys.argv[4], heartbeat_s=0.5, grace_s=1.0, token="faults", reports_others=False))
"""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
INIT = f'ip link set lo up; mount --bind "$0" {BOOT_ID}; "$@" & wait'
"""The first process of a machine, which also collects those whose parents are gone."""


def run(*words: str) -> None:
    """Do something that must succeed."""
    subprocess.run(words, check=True, capture_output=True, text=True)


def needs_namespaces() -> None:
    """Skip where this machine does not let us make namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link", "set", "lo", "up"]
    if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be made here")


def _has_nodes(client: Client, count: int) -> bool:
    return len(client.nodes()) == count


def _is_open(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(place)) == 0


def _space_of(process: int | str, kind: str = "pid") -> int:
    """A process's namespace; 0 where it is gone."""
    try:
        return Path(f"/proc/{process}/ns/{kind}").stat().st_ino
    except OSError:
        return 0


class MachineInSpace:
    """One machine: its network is there from the begin, its processes while it is on."""

    def __init__(self, name: str, space: str, folder: Path) -> None:
        self.name, self.space, self.folder = name, space, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._pids = 0

    def switch_on(self, *words: str) -> None:
        """Boot, and run a Python program."""
        boot = self.folder / f"boot-{uuid.uuid4()}"
        boot.write_text(f"{uuid.uuid4()}\n")
        apart = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.space, *apart, "sh", "-c", INIT, str(boot), sys.executable, "-c", *words],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._pids = self._space_of_init(self._process.pid)

    def _space_of_init(self, outside: int) -> int:
        """The process namespace of what was started."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while (found := _space_of(outside, "pid_for_children")) in {0, _space_of("self")}:
            assert time.monotonic() < deadline_s, f"{self.name} did not start"
            select.select([], [], [], 0.01)
        return found

    def pids(self) -> list[int]:
        """All its processes."""
        names = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [int(name) for name in names if self._pids and _space_of(name) == self._pids]

    def switch_off(self) -> None:
        """Every process is gone at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            deadline_s = time.monotonic() + WAIT_MAX_S
            while self.pids():
                assert time.monotonic() < deadline_s, f"{self.name} does not go"
                select.select([], [], [], 0.01)

    def freeze(self) -> None:
        """Nothing on it goes on."""
        stopped: set[int] = set()
        while fresh := set(self.pids()) - stopped:
            stopped |= fresh
            self._send(fresh, signal.SIGSTOP)

    def thaw(self) -> None:
        """Everything on it goes on."""
        self._send(set(self.pids()), signal.SIGCONT)

    def _send(self, pids: set[int], number: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class Wired:
    """A scheduler, agents on machines of their own, and a pipe on which jobs report."""

    def __init__(
        self, folder: Path, nodes: int, node_timeout_s: float, disk: str = DISK, node_losses_max: int = 3,
        policy: str = "fifo",
    ) -> None:  # fmt: skip
        self.folder, self._disk = folder, disk
        self._settings = str(node_timeout_s), str(node_losses_max), policy
        self._mark = uuid.uuid4().hex[:6]
        self.scheduler = MachineInSpace("scheduler", f"colane-{self._mark}-s", folder)
        self.machines = [
            MachineInSpace(f"node-{number}", f"colane-{self._mark}-{number}", folder) for number in range(1, nodes + 1)
        ]
        self.pipe = folder / "told"
        os.mkfifo(self.pipe)
        self._told = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)
        self._lines: deque[str] = deque()
        self._rest = b""

    def disk(self, machine: MachineInSpace) -> Path:
        """Where a machine keeps its state: a disk of its own of a few megabytes."""
        return self.folder / ("server" if machine is self.scheduler else machine.name)

    def lay(self) -> None:
        """Make the disks, networks and wires."""
        for machine in (self.scheduler, *self.machines):
            self.disk(machine).mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={self._disk}", "tmpfs", str(self.disk(machine)))
        run("ip", "netns", "add", self.scheduler.space)
        for number, machine in enumerate(self.machines, start=1):
            run("ip", "netns", "add", machine.space)
            ends = ("name", f"w{number}", "netns", self.scheduler.space, "type", "veth")
            run("ip", "link", "add", *ends, "peer", "name", "wire", "netns", machine.space)
            for space, link, host in ((self.scheduler.space, f"w{number}", 1), (machine.space, "wire", 2)):
                run("ip", "-n", space, "addr", "add", f"10.199.{number}.{host}/30", "dev", link)
                run("ip", "-n", space, "link", "set", link, "up")

    def switch_on(self) -> None:
        """Make all of it, and switch it on; the agents register one after another: the first comes first."""
        self.lay()
        self.start(self.scheduler)
        for number, machine in enumerate(self.machines, start=1):
            self.start(machine)
            with self.client() as client:
                self.until(partial(_has_nodes, client, number), "its agent registers")

    def start(self, machine: MachineInSpace) -> None:
        """Switch a machine on."""
        if machine is self.scheduler:
            machine.switch_on(SERVER, str(self.disk(machine)), str(PORT), *self._settings)
            return
        number = self.machines.index(machine) + 1
        url = f"http://10.199.{number}.1:{PORT}"
        machine.switch_on(AGENT, machine.name, url, str(self.disk(machine)), f"10.199.{number}.2")

    def cut(self, machine: MachineInSpace) -> None:
        """Lose everything between a machine and the scheduler, without a word to either."""
        run("ip", "-n", self.scheduler.space, "link", "set", f"w{self.machines.index(machine) + 1}", "down")

    def heal(self, machine: MachineInSpace) -> None:
        """Mend its wire."""
        run("ip", "-n", self.scheduler.space, "link", "set", f"w{self.machines.index(machine) + 1}", "up")

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client on the scheduler's machine, once it answers."""
        place = self.disk(self.scheduler) / "socket"
        self.until(lambda: _is_open(place), "the scheduler listens")
        with Client(f"unix://{place}", TOKEN) as client:
            yield client

    def told(self) -> Iterator[str]:
        """Lines that jobs write, as they come; ends when none comes for long."""
        while True:
            while self._lines:
                yield self._lines.popleft()
            ready, _, _ = select.select([self._told], [], [], WAIT_MAX_S)
            if not ready:
                return
            *lines, self._rest = (self._rest + os.read(self._told, 65536)).split(b"\n")
            self._lines.extend(line.decode() for line in lines)

    def until(self, look: Callable[[], object], what: str) -> None:
        """Look until there is something to see."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not look():
            assert time.monotonic() < deadline_s, f"waited in vain: {what}\n{self.logs()}"
            select.select([], [], [], 0.05)

    def logs(self) -> str:
        """What scheduler and agents said."""
        return "\n".join(f"{log.name}: {log.read_text()}" for log in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        """Leave nothing."""
        for machine in (self.scheduler, *self.machines):
            machine.thaw()
            machine.switch_off()
            subprocess.run(["ip", "netns", "del", machine.space], check=False, capture_output=True)
            subprocess.run(["umount", "--lazy", str(self.disk(machine))], check=False, capture_output=True)
        os.close(self._told)
