"""What a thousand listeners to `/events` cost a submission: latency and CPU time of the scheduler, with and without.

A real scheduler process on loopback; the listeners are connections that a process of its own reads. Jobs are submitted
one after another, with and without listeners in turn. Exits with 1 when submissions beside listeners take longer than
the bound in the median.

    python benchmarks/idle_streams.py [--streams 1000] [--jobs 200] [--rounds 3]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

TOKEN = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement
BOUND_MS = 20.0
PAUSE_S = 0.01
"""Between two submissions, so that what they leave to be done later is done while others wait."""

SERVER = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server

run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="fifo", token="benchmark"))
"""


def listen(host: str, port: int, streams: int) -> None:
    """Open listeners, say when all are answered, and read until standard input ends."""
    ask = f"GET /events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    poll, answered = selectors.DefaultSelector(), set()
    poll.register(sys.stdin, selectors.EVENT_READ)
    for _ in range(streams):
        one = socket.create_connection((host, port))
        one.sendall(ask)
        poll.register(one, selectors.EVENT_READ)
    while True:
        for key, _ in poll.select():
            if key.fileobj is sys.stdin:
                return
            assert isinstance(key.fileobj, socket.socket)
            assert key.fileobj.recv(1 << 20), "a stream has ended"
            if key.fd not in answered:
                answered.add(key.fd)
                if len(answered) == streams:
                    sys.stdout.write("all\n")
                    sys.stdout.flush()


@contextmanager
def listeners(url: str, streams: int) -> Iterator[None]:
    """So many listeners, in a process of their own."""
    place = urlsplit(url)
    words = [sys.executable, __file__, "--listen", str(place.hostname), str(place.port), "--streams", str(streams)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "all\n"
        yield
        process.stdin.close()


def submit(http: httpx.Client, jobs: int, server: psutil.Process) -> tuple[list[float], float]:
    """Submit jobs one after another: each answer's milliseconds, and CPU milliseconds of the scheduler a job."""
    taken_ms, before = [], server.cpu_times()
    for _ in range(jobs):
        begin_s = time.perf_counter()
        http.post("/job", json={"command": ["true"], "workdir": "/"}).raise_for_status()
        taken_ms.append((time.perf_counter() - begin_s) * 1e3)
        time.sleep(PAUSE_S)
    after = server.cpu_times()
    return taken_ms, (after.user + after.system - before.user - before.system) / jobs * 1e3


def measure(streams: int, jobs: int, rounds: int, folder: Path) -> dict[int, list[tuple[list[float], float]]]:
    """Return what submissions took without and with listeners, a pair for each round."""
    found: dict[int, list[tuple[list[float], float]]] = {0: [], streams: []}
    words = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]
        server = psutil.Process(process.pid)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
            submit(http, 20, server)
            for _ in range(rounds):
                found[0].append(submit(http, jobs, server))
                with listeners(url, streams):
                    found[streams].append(submit(http, jobs, server))
        process.terminate()
    return found


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="listeners (%(default)s)")
    parser.add_argument("--jobs", type=int, default=200, help="submissions of a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="without and with, in turn (%(default)s)")
    parser.add_argument("--listen", nargs=2, metavar=("HOST", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.listen:
        listen(arguments.listen[0], int(arguments.listen[1]), arguments.streams)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments.streams, arguments.jobs, arguments.rounds, Path(folder))
    sys.stdout.write(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, load {os.getloadavg()[0]:.1f}\n\n")
    sys.stdout.write("| listeners | median ms | p99 ms | scheduler CPU ms/submission |\n| --- | --- | --- | --- |\n")
    medians = {}
    for streams, rounds in found.items():
        taken_ms = sorted(one for taken, _ in rounds for one in taken)
        medians[streams] = statistics.median(taken_ms)
        p99_ms, cpu_ms = taken_ms[len(taken_ms) * 99 // 100], statistics.mean(cpu for _, cpu in rounds)
        sys.stdout.write(f"| {streams} | {medians[streams]:.1f} | {p99_ms:.1f} | {cpu_ms:.2f} |\n")
    return int(medians[arguments.streams] > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
