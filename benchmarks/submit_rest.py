"""Durable submissions over REST, and what the scheduler costs while it waits.

A real scheduler process on loopback with its SQLite store (WAL, synchronous FULL); the load comes from this process
over plain keep-alive connections. Exits with 1 when a bound is missed.

    python benchmarks/submit_rest.py [--seconds 5] [--state DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

TOKEN = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement

PROGRAM = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server

run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="fifo", token="benchmark"))
"""

JOB = {
    "command": ["python", "train.py", "--lr", "0.1"],
    "workdir": "/home/me/project",
    "env": {f"VARIABLE_{n}": "a value of some length" for n in range(20)},
    "gpu_memory_bytes": 2_000_000_000,
    "user": "me",
    "labels": {"run": "benchmark"},
}
QUEUED = 10_000
CLIENTS = 64
BATCH = 100
BATCH_CLIENTS = 4
IDLE_S = 15.0
WARM_UP_S = 0.5


@dataclass(frozen=True)
class Result:
    """One figure with its bound; `at_least` False makes the bound an upper one."""

    name: str
    value: float
    unit: str
    bound: float
    at_least: bool = True

    @property
    def holds(self) -> bool:
        """Whether the bound is kept."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> str:
        """Return a row of the table; the ratio is above 1 when the bound is kept."""
        ratio = self.value / self.bound if self.at_least else self.bound / max(self.value, 1e-9)
        sign = ">=" if self.at_least else "<="
        verdict = "holds" if self.holds else "MISSED"
        return f"| {self.name} | {self.value:,.2f} {self.unit} | {sign} {self.bound:g} | {ratio:.1f} | {verdict} |"


@dataclass
class Server:
    """A scheduler process."""

    process: psutil.Process
    host: str
    port: int


@contextmanager
def server(state: Path) -> Iterator[Server]:
    """Start a scheduler and end it."""
    command = [sys.executable, "-c", PROGRAM, str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urllib.parse.urlsplit(process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0])
            assert url.hostname is not None
            assert url.port is not None
            yield Server(psutil.Process(process.pid), url.hostname, url.port)
        finally:
            process.terminate()


class Connection:
    """One keep-alive connection that posts one body again and again."""

    def __init__(self, server: Server, path: str, body: bytes) -> None:
        self._server = server
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._request = head.encode() + body

    async def post_until(self, end_s: float) -> list[float]:
        """Post until a moment, but once at least, and return how long each answer took, in seconds."""
        reader, writer = await asyncio.open_connection(self._server.host, self._server.port)
        took: list[float] = []
        while (start_s := time.perf_counter()) < end_s or not took:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - start_s)
        writer.close()
        return took


async def load(server: Server, path: str, body: object, clients: int, seconds: float) -> tuple[float, float]:
    """Return requests per second and the median answer time in seconds."""
    data = json.dumps(body).encode()
    start_s = time.perf_counter()
    connections = [Connection(server, path, data) for _ in range(clients)]
    took = await asyncio.gather(*(each.post_until(start_s + seconds) for each in connections))
    all_took = sorted(each for some in took for each in some)
    return len(all_took) / (time.perf_counter() - start_s), all_took[len(all_took) // 2]


def fsyncs_per_s(folder: Path, seconds: float = 1.0) -> float:
    """Return how many small durable appends a second the disk takes: the bound of one client."""
    with (folder / "fsync").open("wb", buffering=0) as file:
        count, start_s = 0, time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            file.write(b"x" * 4096)
            os.fdatasync(file.fileno())
            count += 1
    return count / (time.perf_counter() - start_s)


def throughput(seconds: float, folder: Path) -> list[Result]:
    """Measure the three rates, each on a fresh store."""
    results = []
    for name, path, body, clients, jobs, bound in (
        ("one client", "/job", JOB, 1, 1, 100.0),
        (f"{CLIENTS} clients", "/job", JOB, CLIENTS, 1, 1_000.0),
        (f"{BATCH_CLIENTS} clients, batches of {BATCH}", "/jobs", [JOB] * BATCH, BATCH_CLIENTS, BATCH, 5_000.0),
    ):
        with server(folder / name.replace(" ", "-")) as started:
            asyncio.run(load(started, path, body, clients, WARM_UP_S))
            before_s = cpu_s(started.process)
            rate, median_s = asyncio.run(load(started, path, body, clients, seconds))
            cost_s = (cpu_s(started.process) - before_s) / (rate * seconds * jobs)
        print(f"{name}: median answer {median_s * 1e3:.1f} ms, {cost_s * 1e6:.0f} us of CPU a job", file=sys.stderr)
        results.append(Result(f"submissions, {name}", rate * jobs, "jobs/s", bound))
    return results


def idle(folder: Path) -> list[Result]:
    """Measure an idle scheduler, empty and with 10,000 queued jobs and no node."""
    with server(folder / "idle") as started:
        empty = cpu_ratio(started.process)
        asyncio.run(fill(started))
        full = cpu_ratio(started.process)
        memory = started.process.memory_full_info()
    return [
        Result("CPU while idle, empty", empty * 100, "% of a core", 1.0, at_least=False),
        Result(f"CPU while idle, {QUEUED:,} queued", full * 100, "% of a core", 1.0, at_least=False),
        Result(f"memory (PSS), {QUEUED:,} queued", memory.pss / 1e6, "MB", 150.0, at_least=False),
    ]


async def fill(server: Server) -> None:
    """Queue the jobs."""
    connection = Connection(server, "/jobs", json.dumps([JOB] * BATCH).encode())
    for _ in range(QUEUED // BATCH):
        await connection.post_until(time.perf_counter() + 1e-4)


def cpu_ratio(process: psutil.Process) -> float:
    """Return CPU time over wall time of a quiet spell."""
    before_s, start_s = cpu_s(process), time.perf_counter()
    time.sleep(IDLE_S)
    return (cpu_s(process) - before_s) / (time.perf_counter() - start_s)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process so far, seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> int:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each rate's measurement")
    parser.add_argument("--state", type=Path, help="where the stores lie: the disk matters (default: a temporary)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.state) as name:
        folder = Path(name)
        disk = fsyncs_per_s(folder)
        results = throughput(arguments.seconds, folder) + idle(folder)
    load_1_min = os.getloadavg()[0]
    print(
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, {disk:.0f} fdatasyncs/s, "
        f"load of the machine {load_1_min:.1f}\n"
    )
    print("| figure | measured | bound | ratio | |\n| --- | --- | --- | --- | --- |")
    print("\n".join(result.row() for result in results))
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
