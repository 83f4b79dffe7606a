"""Durable submissions on each store, beside what the disk takes: bare fsyncs and each store in turn, in one run.

A real scheduler process on loopback, first with its SQLite file, then with each store that is named; start their
servers on the same disk. Ratios are to the fsyncs of just before: rates alone tell of the disk and of other work.

    python -m benchmarks.stores redis://127.0.0.1:6379/0 postgres://me@127.0.0.1/colane [--seconds 3] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from benchmarks.submit_rest import JOB, Connection, Server, fsyncs_per_s, load

from colane.server.store.opening import open_store
from colane.server.store.store import AuditEntry, Put, StoreWriter, Transaction, job_key
from colane.settings.store_address import store_address

PROGRAM = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server
from colane.settings.store_address import store_address

store = store_address(sys.argv[2]) if sys.argv[2] else None
run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="fifo", token="benchmark", store=store))
"""
CLIENTS = 64
BATCH = 2_000
WARM_UP_S = 0.5


def named(store: str) -> str:
    """Return the address of a cluster of its own there."""
    return f"{store}{'&' if '?' in store else '?'}name=benchmark-{uuid.uuid4().hex[:8]}"


@contextmanager
def server(state: Path, store: str) -> Iterator[Server]:
    """Start a scheduler on a store, of a cluster of its own, and end it."""
    command = [sys.executable, "-c", PROGRAM, str(state), named(store) if store else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urllib.parse.urlsplit(process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0])
            assert url.hostname is not None
            assert url.port is not None
            yield Server(psutil.Process(process.pid), url.hostname, url.port)
        finally:
            process.terminate()


async def batch_s(started: Server) -> float:
    """Return how long one request with many jobs takes."""
    connection = Connection(started, "/jobs", json.dumps([JOB] * BATCH).encode())
    return (await connection.post_until(time.perf_counter() + 0.02))[0]


def commits(url: str, folder: Path, seconds: float) -> tuple[float, float]:
    """Return how many commits of three documents and a line a store makes a second, and how long one of 2,000 takes.

    Each names epoch, events and version, as a scheduler's do.
    """
    store = open_store(store_address(named(url)) if url else None, folder)
    document = {"name": "x" * 150}
    number, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        puts = [Put(collection, job_key(number), document) for collection in ("submitted_jobs", "launch_specs", "used")]
        store.commit(Transaction(puts, audit=[AuditEntry(0.0, "job", document)]), StoreWriter(0, number, number))
        number += 1
    rate, start_s = number / (time.perf_counter() - start_s), time.perf_counter()
    many = [Put("finished_jobs", job_key(each), document) for each in range(BATCH)]
    store.commit(Transaction(many), StoreWriter(0, number, number))
    took_s = time.perf_counter() - start_s
    store.close()
    return rate, took_s


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="*", help="stores over the network, beside SQLite")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured; medians are shown")
    parser.add_argument("--state", type=Path, help="where SQLite's file lies: the disk matters (default: a temporary)")
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for number in range(arguments.rounds):
        for store in ("", *arguments.stores):
            with tempfile.TemporaryDirectory(dir=arguments.state) as folder:
                disk = fsyncs_per_s(Path(folder))
                alone, large = commits(store, Path(folder), arguments.seconds)
                disk = (disk + fsyncs_per_s(Path(folder))) / 2
                with server(Path(folder) / "state", store) as started:
                    asyncio.run(load(started, "/job", JOB, 1, WARM_UP_S))
                    single, _ = asyncio.run(load(started, "/job", JOB, 1, arguments.seconds))
                    many, _ = asyncio.run(load(started, "/job", JOB, CLIENTS, arguments.seconds))
                    batch = asyncio.run(batch_s(started))
            scheme = urllib.parse.urlsplit(store).scheme or "sqlite"
            kind = {"unix": "redis", "rediss": "redis"}.get(scheme, scheme)
            print(f"round {number + 1}, {kind}: {disk:.0f} fsyncs/s, {single:.0f} jobs/s", file=sys.stderr)
            found[kind].append((disk, alone, large, single, many, batch))
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load of the machine {os.getloadavg()[0]:.1f}\n")
    heads = ("store", "fsyncs/s", "commits/s", "of fsyncs", f"one of {BATCH:,} documents", "REST, one client")
    print(f"| {' | '.join((*heads, f'{CLIENTS} clients', f'a batch of {BATCH:,}'))} |\n{'| --- ' * 8}|")
    for kind, rounds in found.items():
        disk, alone, large, single, many, batch = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(one / bare for bare, one, *_ in rounds)
        row = (kind, f"{disk:.0f}", f"{alone:.0f}", f"{ratio:.2f}", f"{large * 1e3:.0f} ms")
        rest = (f"{single:.0f} jobs/s", f"{many:,.0f} jobs/s", f"{batch * 1e3:.0f} ms")
        print(f"| {' | '.join((*row, *rest))} |")


if __name__ == "__main__":
    main()
