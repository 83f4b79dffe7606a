"""How long commands and listings take with many jobs: 10,000 queued and 100,000 that have ended.

    python benchmarks/listings.py [--queued 10000] [--ended 100000] [--runs 7] [--limit-ms 300] [--state DIR]

A real scheduler process on loopback over a SQLite store that is filled beforehand (kept with --state, and used again).
Wall time is what a user waits; CPU time is what other load on the machine does not stretch. The peer is the bare
start of Python with the libraries a command needs. Exit code 1 when a command's CPU time is over the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.ground.access import Callers
from colane.server.http.app import create_app
from colane.server.http.door import GateRules
from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import FINISHED_JOBS, META, Put, Transaction, job_key

DATABASE = "colane.db"
BATCH = 1_000
NODE = {
    "name": "n1", "agent_id": "a", "address": "http://127.0.0.1:1", "cores": [0, 1], "host_memory_bytes": 10**10,
    "gpus": [{"index": 0, "uuid": "cpu-0", "type": "cpu", "memory_bytes": 10**10}],
}  # fmt: skip
JOB = {"command": ["python", "train.py"], "user": "me", "env": {f"V{n}": "some text" for n in range(20)}}
ENDED = {
    "id": 1, "attempt": 1, "node": "n1", "agent_id": "a", "end_s": 2.0, "outcome": "exited", "exit_code": 0,
    "step_durations_s": [0.1] * 100,
}  # fmt: skip
RUNNING = {"agent_id": "a", "at_s": 1.0, "jobs": [{"id": 1, "attempt": 1, "phase": "launched", "pid": 1}]}
COMMANDS = ("ps", "ps --all", "ps --user me", "show LAST", "why LAST", "show 1", "nodes")
PATHS = ("/listing", "/listing?ended=true", "/listing?ended=true&user=nobody", "/jobs", "/finished_jobs?limit=1000")
TOKEN = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement
SERVE = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server
run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy="colocate", token="benchmark"))
"""
BARE = "import typer, pydantic, json; from colane.client.light_httpx import prepare_httpx; prepare_httpx()"


def main() -> int:
    """Fill a store where there is none, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--ended", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--limit-ms", type=float, default=300.0)
    parser.add_argument("--state", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = given.state or Path(folder)
        state.mkdir(parents=True, exist_ok=True)
        if not (state / DATABASE).exists():
            asyncio.run(fill(state / DATABASE, given.queued, given.ended))
        return measured(state, given.queued + given.ended, given.runs, given.limit_ms)


async def fill(path: Path, queued: int, ended: int) -> None:
    """Put jobs into a store: one that really ran and its copies, then those that wait, by the service itself."""
    store = SqliteStore(path)
    async with serving(store) as http:
        for address, body in (("/node", NODE), ("/job", JOB), ("/node/n1/report", RUNNING), ("/finished_job", ENDED)):
            (await http.post(address, json=body)).raise_for_status()
    document: dict[str, Any] = dict(store.get(FINISHED_JOBS, job_key(1)) or {})
    for first in range(2, ended + 1, BATCH):
        ids = range(first, min(first + BATCH, ended + 1))
        store.commit(Transaction([Put(FINISHED_JOBS, job_key(one), copied(document, one)) for one in ids]))
    counters = dict(store.get(META, "counters") or {})
    store.commit(Transaction([Put(META, "counters", {**counters, "next_job_id": ended + 1})]))
    async with serving(store) as http:
        for first in range(0, queued, BATCH):
            (await http.post("/jobs", json=[JOB] * min(BATCH, queued - first), timeout=60)).raise_for_status()
    store.close()


def copied(document: dict[str, Any], job: int) -> dict[str, Any]:
    """Return a record as another job's."""
    return {**document, "job": {**document["job"], "id": job}}


class serving(AsyncExitStack):  # noqa: N801 - used like a function
    """A service in this process, for as long as it is entered."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__()
        self._store = store

    async def __aenter__(self) -> httpx.AsyncClient:  # type: ignore[override]
        service = make_service(self._store, ServiceConfig(policy="colocate", workdir="/"))
        driving = asyncio.create_task(service.run())

        async def stop() -> None:
            service.stop()
            await driving

        self.push_async_callback(stop)
        transport = httpx.ASGITransport(create_app(service, GateRules(callers=Callers(token=TOKEN))))
        return await self.enter_async_context(
            httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {TOKEN}"}
            )
        )


def measured(state: Path, last: int, runs: int, limit_ms: float) -> int:
    """Measure commands and addresses of a scheduler process on this state."""
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(state)])
    try:
        url = until_up(state, server.pid)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"COLANE_URL": url, "COLANE_TOKEN": TOKEN}
        print("| what | wall, median (ms) | CPU of the client, median (ms) |\n|---|---|---|")
        row("Python with the same libraries", runs, lambda: run([sys.executable, "-c", BARE], env))
        slow = [
            words
            for words in COMMANDS
            if row(f"`colane {words}`", runs, partial(run, command(words, last), env)) > limit_ms
        ]
        with httpx.Client(base_url=url, headers={"Authorization": "Bearer benchmark"}, timeout=120) as http:
            for path in PATHS:
                row(f"`GET {path}`", runs, partial(http.get, path))
    finally:
        server.terminate()
        server.wait()
    return int(bool(slow))


def command(words: str, last: int) -> list[str]:
    """Return a command line, with the number of the last job filled in."""
    return [sys.executable, "-m", "colane.cli", *(str(last) if word == "LAST" else word for word in words.split())]


def run(words: list[str], env: dict[str, str]) -> None:
    """Run a command that succeeds."""
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def row(name: str, runs: int, call: Callable[[], object]) -> float:
    """Print the medians of a call, the first left out; return the CPU milliseconds."""
    call()
    walls, cpus = zip(*(once(call) for _ in range(runs)), strict=True)
    print(f"| {name} | {statistics.median(walls):.0f} | {statistics.median(cpus):.0f} |", flush=True)
    return float(statistics.median(cpus))


def once(call: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU milliseconds, children's time included."""
    before_s, start_s = cpu_s(), time.perf_counter()
    call()
    return (time.perf_counter() - start_s) * 1e3, (cpu_s() - before_s) * 1e3


def cpu_s() -> float:
    """CPU time of this process and its children that have ended."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in times)


def until_up(state: Path, pid: int) -> str:
    """Return the URL of the scheduler once it answers."""
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        try:
            body = json.loads((state / "server.json").read_text())
            if body["pid"] == pid:
                httpx.get(f"{body['url']}/health", timeout=60)
                return str(body["url"])
        except (OSError, ValueError, httpx.HTTPError):
            pass
        time.sleep(0.1)
    raise SystemExit("the scheduler does not answer")


if __name__ == "__main__":
    sys.exit(main())
