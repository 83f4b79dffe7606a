"""How long a cluster waits for its standby: the leader is killed, or hands over, with many jobs queued and many nodes.

Two real scheduler processes on one store, agents that only speak (each node runs one job), and a client that knows
both and submits one job after another. After the kill one job ends; the first start is when a node is told of another.

    python -m benchmarks.failover redis://127.0.0.1:6379/0 [--nodes 1000] [--queued 10000] [--lease 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.stores import named

from colane.client.agent_link import AgentLink
from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.server.http.listening import raise_descriptor_limit

TOKEN = "benchmark"  # noqa: S105
HEARTBEAT_S = 10.0
"""Longer than an agent's own: all of them share the two cores with what is measured."""
BATCH = 2_000
HOWS = ("kill -9", "frozen", "handing over")
ACCEPTED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{"accepted": true}'
JOB = {"command": ["true"], "gpus": 1, "user": "ann"}
PROGRAM = """
import sys
from pathlib import Path
from colane.model.limits import Limits, Quotas
from colane.server.config import ServerConfig
from colane.server.main import run_server
from colane.settings.store_address import store_address

state, store, lease_s, standby = sys.argv[1:]
run_server(ServerConfig(state_dir=Path(state), port=0, policy="fifo", token="benchmark", store=store_address(store),
                        leader_lease_s=float(lease_s), standby=standby == "yes", quotas=Quotas(Limits())))
"""


def gpus_of(node: str) -> list[dict[str, Any]]:
    """The one device of a node."""
    return [{"index": 0, "uuid": f"u-{node}", "type": "cpu", "memory_bytes": 10**9}]


class Scheduler:
    """One of both, as a process."""

    def __init__(self, state: Path, store: str, lease_s: float, *, standby: bool) -> None:
        words = [sys.executable, "-c", PROGRAM, str(state), store, str(lease_s), "yes" if standby else "no"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]

    def role(self) -> str:
        """What its health says it is."""
        with contextlib.suppress(SchedulerError), Client(self.url, TOKEN) as client:
            return str(client.health()["role"])
        return ""


class Nodes:
    """Agents that report, in a thread with a loop of its own."""

    def __init__(self, urls: str, count: int) -> None:
        self.urls, self.count = urls, count
        self.told: dict[str, int] = {}
        self.first_new_s = 0.0
        self._known: dict[str, dict[str, Any]] = {}
        self._woken: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._nudged, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*(self._agent(f"n{number}", number) for number in range(self.count)))

    async def _nudged(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An agent is woken: by what its path begins with."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"]
                await reader.readexactly(sum(lengths))
                self._woken[head.split(b" ", 2)[1].split(b"/")[1].decode()].set()
                writer.write(ACCEPTED)
        writer.close()

    async def _agent(self, name: str, number: int) -> None:
        described: Any = {"name": name, "agent_id": name, "gpus": gpus_of(name), "host_memory_bytes": 10**10}
        described["cores"] = [0, 1]
        described["address"] = f"http://127.0.0.1:{self._port}/{name}"
        async with AgentLink(self.urls, TOKEN) as link:
            await asyncio.sleep(number / self.count * 2)
            while True:
                try:
                    self._known[name] = dict(await link.register(described))
                    break
                except SchedulerError:
                    await asyncio.sleep(HEARTBEAT_S)
            while True:
                with contextlib.suppress(SchedulerError):
                    await self._report(link, name)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._woken[name].wait()
                self._woken[name].clear()

    async def _report(self, link: AgentLink, name: str) -> None:
        known = self._known[name]
        job = self.told.get(name)
        jobs = [] if job is None else [{"id": job, "attempt": 1, "phase": "launched", "pid": 1}]
        heard = {"cluster_id": known["cluster_id"], "epoch": known["epoch"], "events_seen": known["events"]}
        report: Any = {"agent_id": name, "at_s": time.time(), "gpus": gpus_of(name), "jobs": jobs, **heard}
        node = await link.report(name, report)
        self._known[name] = dict(node)
        new = [each["id"] for each in node["jobs"]]
        if new and new[0] != job:
            self.first_new_s = self.first_new_s or time.monotonic()
            self.told[name] = new[0]
        if len(self.told) == self.count:
            self.ready.set()

    def end_one(self) -> None:
        """One job ends; the next start is of interest."""
        self.first_new_s = 0.0
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._finish("n0"), self._loop)

    async def _finish(self, name: str) -> None:
        body: Any = {"id": self.told[name], "attempt": 1, "node": name, "agent_id": name, "end_s": time.time()}
        body |= {"outcome": "exited", "exit_code": 0}
        async with AgentLink(self.urls, TOKEN) as link:
            while True:
                try:
                    await link.finished(body)
                    await self._report(link, name)
                except SchedulerError:
                    await asyncio.sleep(0.1)
                else:
                    return


class Users:
    """A client that knows both and submits one job after another."""

    def __init__(self, urls: str) -> None:
        self.longest_s, self.errors, self.count = 0.0, 0, 0
        self._urls, self._stop = urls, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with Client(self._urls, TOKEN) as client:
            while not self._stop.is_set():
                began_s = time.monotonic()
                try:
                    client.submit(JOB)
                except SchedulerError:
                    self.errors += 1
                self.count += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                time.sleep(0.05)

    def end(self) -> None:
        """Submit no more."""
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def cluster(store: str, folder: Path, asked: argparse.Namespace) -> Iterator[tuple[Scheduler, Scheduler, Nodes]]:
    """A leader, its standby, nodes that each run a job, and a queue."""
    place = named(store)
    first = Scheduler(folder / "a", place, asked.lease, standby=False)
    second = Scheduler(folder / "b", place, asked.lease, standby=True)
    try:
        urls = f"{first.url},{second.url}"
        nodes = Nodes(urls, asked.nodes)
        with Client(first.url, TOKEN) as client:
            for _ in range(0, asked.nodes + asked.queued, BATCH):
                client.submit_batch([JOB] * BATCH)
        if not nodes.ready.wait(600):
            raise SystemExit(f"only {len(nodes.told)} of {asked.nodes} nodes run a job")
        time.sleep(3.0)
        yield first, second, nodes
    finally:
        for one in (first, second):
            one.process.kill()
            one.process.wait()


def measured(store: str, asked: argparse.Namespace, how: str) -> tuple[float, float, float, int]:
    """Return seconds until the standby leads, until the first start, of the longest request, and how many failed."""
    with tempfile.TemporaryDirectory() as folder, cluster(store, Path(folder), asked) as (first, second, nodes):
        users = Users(f"{first.url},{second.url}")
        time.sleep(1.0)
        began_s = time.monotonic()
        if how == "kill -9":
            first.process.send_signal(signal.SIGKILL)
        elif how == "frozen":
            first.process.send_signal(signal.SIGSTOP)
        else:
            with Client(first.url, TOKEN) as client:
                client.hand_over()
        nodes.end_one()
        while second.role() != "leader":
            time.sleep(0.02)
        leads_s = time.monotonic() - began_s
        while not nodes.first_new_s:
            time.sleep(0.02)
        start_s = nodes.first_new_s - began_s
        time.sleep(2.0)
        users.end()
        return leads_s, start_s, users.longest_s, users.errors


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", help="stores over the network")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    parser.add_argument("--how", choices=HOWS, action="append", help="only so (default: each)")
    asked = parser.parse_args()
    raise_descriptor_limit()
    load = os.getloadavg()[0]
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load of the machine before {load:.1f}; "
          f"{asked.nodes} nodes, {asked.queued} queued, lease {asked.lease:g} s\n")  # fmt: skip
    print("| store | the leader is | standby leads | first start | longest request | refused |\n" + "| --- " * 6 + "|")
    for store in asked.stores:
        kind = {"unix": "redis"}.get(urllib.parse.urlsplit(store).scheme, urllib.parse.urlsplit(store).scheme)
        for how in asked.how or HOWS:
            leads_s, start_s, longest_s, errors = measured(store, asked, how)
            row = f"{leads_s:.1f} s | {start_s:.1f} s | {longest_s:.1f} s | {errors}"
            print(f"| {kind} | {how} | {row} |", flush=True)


if __name__ == "__main__":
    main()
