"""A real Ray of several nodes in a network of its own; nothing is reached from there, and all leaves with it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.conftest import until

WHY = "needs root, unshare, ip and Ray (the test group)"
PROGRAMS = ("unshare", "ip")
NEW_NETWORK = 0x40000000
PORT = 6399
TUNED = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
    "prestart_worker_first_driver": False,
    "enable_worker_prestart": False,
}
NETWORK = """
ip link set lo up
ip link add d0 type veth peer name d1
ip link set d0 addrgenmode none
ip link set d1 addrgenmode none
ip addr add 10.99.0.1/24 dev d0
ip link set d0 up
ip link set d1 up
ip route add default via 10.99.0.2
"""
"""What leaves the machine goes to d0, where its packets are counted."""
APART = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")


ALIVE = """
import sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info()
print(*[node.node_name for node in nodes.values() if node.state == 0])
"""


@dataclass
class RayCluster:
    """A cluster; each node is a process whose end is the end of all that runs there.

    Attributes:
        folder: Of all its files.
    """

    folder: Path
    address: str = f"127.0.0.1:{PORT}"
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """What its processes have in their environment; no word leaves them."""
        return {
            "HOME": str(self.folder / "home"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_USAGE_STATS_REPORT_URL": "http://127.0.0.1:9",
            "RAY_enable_metrics_collection": "0",
            "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
        }

    def head(self) -> None:
        """Start the head, which has no GPUs."""
        system = f"--system-config={json.dumps(TUNED)}"
        more = [f"--port={PORT}", "--num-cpus=1", "--num-gpus=0", "--include-dashboard=false", "--disable-usage-stats"]
        self._start("head", ["--head", system, *more], {})
        until(self._listens, "Ray's head listens")

    def add(self, name: str, *, gpus: int = 4, is_named: bool = True) -> None:
        """Start a node."""
        named = [f"--resources={json.dumps({f'colane:{name}': 1})}"] if is_named else []
        words = [f"--address={self.address}", "--num-cpus=2", f"--num-gpus={gpus}", "--dashboard-agent-listen-port=0"]
        self._start(name, [*words, *named], {"COLANE_STATE": str(self.folder / "state")})

    def kill(self, name: str) -> None:
        """End a node as a machine ends that loses its power."""
        process = self.nodes.pop(name)
        process.kill()
        process.wait()

    def kill_raylet(self, name: str) -> None:
        """End what makes a node one of Ray's, and nothing else."""
        own = str(self.folder / name).encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if words.partition(b"\0")[0].endswith(b"/raylet") and own in words:
                    os.kill(int(entry.name), signal.SIGKILL)
                    return
        raise AssertionError(f"{name} has no raylet")

    def alive(self) -> set[str]:
        """Names of the nodes that Ray has."""
        words = [sys.executable, "-c", ALIVE, self.address]
        env = {**os.environ, **self.env}
        return set(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.split())

    def packets_sent(self) -> int:
        """How many packets were to leave this machine."""
        shown = subprocess.run(["ip", "-j", "-s", "link", "show", "d0"], capture_output=True, check=True).stdout
        return int(json.loads(shown)[0]["stats64"]["tx"]["packets"])

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=1.0):
            return True
        assert self.nodes["head"].poll() is None, (self.folder / "head.log").read_text()[-2000:]
        return False

    def _start(self, name: str, words: list[str], env: Mapping[str, str]) -> None:
        ray = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--node-ip-address=127.0.0.1"]
        size = ["--object-store-memory=80000000", "--min-worker-port=0", "--max-worker-port=0"]
        own = [f"--node-name={name}", f"--temp-dir={self.folder / name}", "--include-log-monitor=false"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen(
                [*APART, *ray, *words, *size, *own],
                env={**os.environ, **self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@contextmanager
def _own_network() -> Iterator[None]:
    """Be in a network of one's own meanwhile: this thread, and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if libc.unshare(NEW_NETWORK) != 0:
        os.close(before)
        pytest.skip(WHY)
    try:
        made = subprocess.run(["sh", "-ec", NETWORK], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no network of its own here: {made.stderr}")
        yield
    finally:
        libc.setns(before, NEW_NETWORK)
        os.close(before)


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Start a head, and end it with all that runs on its nodes."""
    if os.geteuid() != 0 or not all(shutil.which(program) for program in PROGRAMS):
        pytest.skip(WHY)
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    (folder / "home").mkdir()
    (folder / "home" / "ray_bootstrap_config.yaml").write_text("{}\n")
    made = RayCluster(folder)
    try:
        with _own_network():
            made.head()
            yield made
    finally:
        for name in list(made.nodes):
            made.kill(name)
        shutil.rmtree(folder, ignore_errors=True)
