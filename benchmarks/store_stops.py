"""How long a scheduler's event loop stops while its store is far away: a proxy adds a round trip to what it asks.

The loop of a real scheduler notes how late it is, each millisecond, while clients submit one job after another, batches
of jobs, and ask for what only the store knows. Of each stop it tells for how long its own thread ran, and how long
others, as the one that speaks to the store and has Python's lock meanwhile. What is left it waited for a core, or for a
store: that takes a whole round trip. A bare loop in a process of its own notes the same in the same seconds, which is
what the machine's other work does. Stores are on sockets.

    python -m benchmarks.store_stops unix:///DIR/s "postgres://postgres@/postgres?host=/DIR" [--added 0.2]
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx
from benchmarks.stores import named
from benchmarks.submit_rest import JOB, TOKEN

from colane.api.job_request import JobRequest
from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.ground.access import Caller, Role
from colane.server.store.memory import MemoryStore
from colane.server.store.opening import open_store
from colane.server.store.store import StoreWriter, Transaction
from colane.settings.store_address import store_address

CHUNK_BYTES = 1 << 18
CLIENTS = 8
BATCH = 200
STARTED_MAX_S = 60.0
SETTLES_S = 2.0
LARGE = 2_000
ROUNDS = 5

TICKER = """
import asyncio, json, signal, sys, time

class Stops:
    TICK_S = 0.001

    def __init__(self, loop):
        self.loop = loop
        loop.add_signal_handler(signal.SIGUSR1, self.tell)
        self.begin()
        loop.call_later(self.TICK_S, self.tick)

    def begin(self):
        self.longest, self.most_ran, self.most_others, self.most_left = [0.0] * 4, 0.0, 0.0, 0.0
        self.known = self.now()

    def now(self):
        return time.perf_counter(), time.thread_time(), time.process_time()  # none of them lets another thread run

    def tick(self):
        now = self.now()
        took, ran, all_ran = (after - before for after, before in zip(now, self.known))
        late, others = max(0.0, took - self.TICK_S), all_ran - ran
        left = max(0.0, late - ran - others)
        self.longest, self.most_ran = max(self.longest, [late, ran, others, left]), max(self.most_ran, ran)
        self.most_others, self.most_left = max(self.most_others, min(late, others)), max(self.most_left, left)
        self.known = now
        self.loop.call_later(self.TICK_S, self.tick)

    def tell(self):
        print(json.dumps([*self.longest, self.most_ran, self.most_others, self.most_left, len(ASKED)]), flush=True)
        self.begin()
        ASKED.clear()

ASKED = []
"""
BARE = f"""{TICKER}
async def main():
    Stops(asyncio.get_running_loop())
    print("http://bare", flush=True)
    await asyncio.Event().wait()

import uvloop
uvloop.run(main())
"""
SCHEDULER = f"""{TICKER}
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server
from colane.settings.store_address import store_address

import threading
from colane.server.store import postgres_store, redis_store, sqlite

LOOP = threading.get_ident()
COMMON = ("get", "count", "read_all", "page", "page_back", "audit", "last_audit_number", "version", "commit", "scrub")

def noted(kind, name):
    method = getattr(kind, name)

    def asked(*given, **named):
        if threading.get_ident() == LOOP:
            ASKED.append(name)
        return method(*given, **named)

    setattr(kind, name, asked)

def listening(url):
    Stops(asyncio.get_running_loop())
    for kind in (sqlite.SqliteStore, redis_store.RedisStore, postgres_store.PostgresStore):
        for name in COMMON:
            noted(kind, name)
    print(url, flush=True)

store = store_address(sys.argv[2]) if sys.argv[2] else None
run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="fifo", token={TOKEN!r}, store=store), listening)
"""


class Noted:
    """A process whose loop notes its stops."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, text=True)
        self.url = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def told(self) -> list[float]:
        """Return what has stopped the loop so far, in seconds, and begin anew.

        First the longest stop with its parts: the loop's thread ran, other threads did, and what is left; then of all
        stops the most that the loop ran, that others did and that was left; last how often the loop asked the store.
        """
        self.process.send_signal(signal.SIGUSR1)
        found: list[float] = json.loads(self._line())
        return found

    def end(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


@contextmanager
def far(store: str, folder: Path, added_s: float) -> Iterator[str]:
    """Yield the address of a store that is a round trip further away."""
    parts = urllib.parse.urlsplit(store)
    if parts.scheme == "unix":
        server, here = Path(parts.path), folder / "s"
        address = store.replace(parts.path, str(here), 1)
    else:
        host = urllib.parse.parse_qs(parts.query)["host"][0]
        server, here = Path(host) / ".s.PGSQL.5432", folder / ".s.PGSQL.5432"
        address = store.replace(host, str(folder), 1)
    process = multiprocessing.Process(target=_pass_on, args=(server, here, added_s / 2), daemon=True)
    process.start()
    until_s = time.monotonic() + STARTED_MAX_S
    while not here.exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    try:
        yield address
    finally:
        process.kill()
        process.join()


def _pass_on(server: Path, here: Path, delay_s: float) -> None:
    async def line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK_BYTES):
            loop.call_later(delay_s, writer.write, data)
        await asyncio.sleep(delay_s)
        writer.close()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(server))
        await asyncio.gather(line(reader, back), line(there, writer), return_exceptions=True)

    async def serve() -> None:
        async with await asyncio.start_unix_server(both, str(here)) as listener:
            await listener.serve_forever()

    asyncio.run(serve())


async def busy(url: str, seconds: float) -> int:
    """Ask for all that the store has to do with; return how many jobs were made durable."""
    end_s, made = time.monotonic() + seconds, 0
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        nonlocal made
        while time.monotonic() < end_s:
            if number == 0:
                answer = await client.post("/jobs", json=[JOB] * BATCH)
                answer.raise_for_status()
                made += BATCH
            elif number == 1:
                for path in ("/finished_jobs", "/jobs", "/nodes"):
                    (await client.get(path)).raise_for_status()
                assert (await client.get("/job/99999999")).status_code == 404
            else:
                key = {"Idempotency-Key": f"{number}-{made}-{time.monotonic()}"}
                (await client.post("/job", json=JOB, headers=key)).raise_for_status()
                made += 1

    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        await asyncio.gather(*(ask(client, number) for number in range(CLIENTS)))
    return made


def measured(store: str, added_s: float, seconds: float) -> tuple[int, list[float], list[float]]:
    """Return how many jobs were made durable, and what the scheduler's loop and the bare one tell."""
    bare, scheduler = Noted(BARE), None
    try:
        with tempfile.TemporaryDirectory(prefix="stops") as folder, far(named(store), Path(folder), added_s) as address:
            scheduler = Noted(SCHEDULER, str(Path(folder) / "state"), address)
            asyncio.run(busy(scheduler.url, SETTLES_S))
            for each in (bare, scheduler):
                each.told()
            made = asyncio.run(busy(scheduler.url, seconds))
            return made, scheduler.told(), bare.told()
    finally:
        for one in (bare, scheduler):
            if one is not None:
                one.end()


class Keeping(MemoryStore):
    """Keeps the largest transaction."""

    largest = Transaction()

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        self.largest = max(self.largest, transaction, key=lambda one: len(one.puts))
        return super().commit(transaction, writer)


async def transaction_of(jobs: int) -> Transaction:
    """Return what a scheduler writes of a batch of so many jobs."""
    store = Keeping()
    service = make_service(store, ServiceConfig(policy="fifo", workdir="/"))
    running = asyncio.create_task(service.driver.run())
    requests = [JobRequest.model_validate(JOB)] * jobs
    await service.driver.change(service.submissions.submit(requests, Caller("me", Role.OPERATOR)))
    service.driver.stop()
    await running
    return store.largest


GIVES_WAY: Final = frozenset(
    {"Connection.execute", "Connection.executemany", "Connection.__exit__", "socket.sendall", "socket.recv_into",
     "socket.recv"}
)  # fmt: skip
"""Of the calls of a commit those that let Python's lock go while they wait or work (SQLite's at each row)."""


def longest_call(store: str, transaction: Transaction) -> tuple[float, str]:
    """Return the CPU time of the longest call of a commit that Python does not interrupt, in seconds, and its name."""
    longest, began_s = (0.0, ""), 0.0

    def note(_: FrameType, event: str, call: Any) -> None:  # noqa: ANN401 - of a call what was called
        nonlocal longest, began_s
        now_s = time.thread_time()
        if event == "c_call":
            began_s = now_s
        elif event == "c_return" and (name := call.__qualname__) not in GIVES_WAY:
            longest = max(longest, (now_s - began_s, name))

    def commit() -> None:
        sys.setprofile(note)
        opened.commit(transaction, StoreWriter(0, 0, 0))
        sys.setprofile(None)

    with tempfile.TemporaryDirectory() as folder:
        opened = open_store(store_address(named(store)) if store else None, Path(folder))
        thread = threading.Thread(target=commit)
        thread.start()
        thread.join()
        assert opened.version() == 1
        opened.close()
    return longest


def kind_of(store: str) -> str:
    """Return of which kind a store is."""
    return {"": "sqlite", "unix": "redis"}.get(urllib.parse.urlsplit(store).scheme, "postgres")


def main() -> None:
    """Run all and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", help="stores over the network, on sockets")
    parser.add_argument("--added", type=float, default=0.2, help="round trip that is added, seconds")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each measurement")
    asked = parser.parse_args()
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| store | longest uninterrupted call of a commit of 2,000 jobs, CPU | it is |\n| --- | --- | --- |")
    transaction = asyncio.run(transaction_of(LARGE))
    for store in ("", *asked.stores):
        longest = [longest_call(store, transaction) for _ in range(ROUNDS)]
        took_s, name = sorted(longest)[ROUNDS // 2]
        print(f"| {kind_of(store)} | {took_s * 1e3:.2f} ms | `{name}` |", flush=True)
    heads = ("store", "added", "jobs", "the loop asked the store", "longest stop", "the loop ran", "others ran", "left")
    last = ("most that the loop ran", "most that others ran", "most left", "a bare loop: longest stop", "most left")
    print(f"\n| {' | '.join((*heads, *last))} |\n{'| --- ' * 13}|")
    for store in asked.stores:
        for added_s in (0.0, asked.added):
            made, (*told, times), bare = measured(store, added_s, asked.seconds)
            row = [f"{one * 1e3:.1f} ms" for one in (*told, bare[0], bare[6])]
            how = f"{kind_of(store)} | {added_s * 1e3:.0f} ms | {made} | {times:.0f} times"
            print(f"| {how} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
