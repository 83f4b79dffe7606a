"""How long small requests take beside a batch of thousands of jobs and beside a long queue, against a bare request.

A real scheduler process on loopback under the default policy, with its SQLite store. One client asks for a job and
submits one all the time, another asks `GET /health` beside them: what that takes is what the machine and the event loop
take of any request. First so many jobs are queued, then batches come one after another. Printed are p50 and p99 of each
kind, and their ratio to the bare request beside an empty queue: wall times are of a machine as busy as it is.

    python -m benchmarks.submit_beside [--batch 4000] [--queued 10000] [--batches 5] [--policy colane]
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
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from benchmarks.submit_rest import JOB, PROGRAM, TOKEN

QUIET_S = 5.0
PAUSE_S = 0.005
Took = dict[str, list[float]]


@contextmanager
def scheduler(state: Path, policy: str) -> Iterator[str]:
    """Start one, and give its URL."""
    program = PROGRAM.replace('policy="fifo"', f"policy={policy!r}")
    with subprocess.Popen([sys.executable, "-c", program, str(state)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urllib.parse.urlsplit(process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0])
            yield f"http://{url.hostname}:{url.port}"
        finally:
            process.terminate()


class Client:
    """Asks one kind of request again and again, and keeps what each took under what else was going on."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120.0)
        self.took: dict[str, Took] = defaultdict(lambda: defaultdict(list))
        self.now = ""

    async def ask(self, what: str) -> None:
        """One request, counted where something is measured; it counts for what went on when it began."""
        during, began_s = self.now, time.perf_counter()
        if what == "POST /jobs, one job":
            answer = await self._http.post("/jobs", json=[JOB])
        else:
            answer = await self._http.get(what.removeprefix("GET "))
        assert answer.status_code == 200, answer.text
        if during:
            self.took[during][what].append(time.perf_counter() - began_s)

    async def keep_asking(self, what: str) -> None:
        """Until cancelled."""
        while True:
            await self.ask(what)
            await asyncio.sleep(PAUSE_S)

    async def submit(self, jobs: int) -> float:
        """A batch; how long it took."""
        body, began_s = json.dumps([JOB] * jobs), time.perf_counter()
        answer = await self._http.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - began_s


KINDS = ("GET /health", "GET /job/1", "POST /jobs, one job")


async def measure(url: str, queued: int, batch: int, batches: int) -> tuple[dict[str, Took], list[float]]:
    """All times, by what went on, and how long the batches took."""
    client = Client(url)
    await client.submit(1)
    asking = [asyncio.create_task(client.keep_asking(kind)) for kind in KINDS]
    client.now = "an empty queue"
    await asyncio.sleep(QUIET_S)
    client.now = ""
    for _ in range(queued // 1000):
        await client.submit(1000)
    client.now = f"{queued:,} queued"
    await asyncio.sleep(QUIET_S)
    took_s = []
    for _ in range(batches):
        client.now = f"batches of {batch:,}"
        took_s.append(await client.submit(batch))
        client.now = ""
        await asyncio.sleep(0.5)
    for task in asking:
        task.cancel()
    return client.took, took_s


def part(times_s: list[float], percent: int) -> float:
    """The least that so many percent do not exceed."""
    return sorted(times_s)[-(-percent * len(times_s) // 100) - 1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--policy", default="colane")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, scheduler(Path(name), args.policy) as url:
        took, batches_s = asyncio.run(measure(url, args.queued, args.batch, args.batches))
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.policy}")
    print(f"batches of {args.batch:,} in {', '.join(f'{each:.2f}' for each in batches_s)} s\n")
    print("| beside | request | how many | p50 | p99 | longest | p99 to a bare one |\n" + "| --- " * 7 + "|")
    bare_s = part(next(iter(took.values()))[KINDS[0]], 99)
    for during, kinds in took.items():
        for kind in KINDS:
            p50, p99, most = (part(kinds[kind], percent) * 1e3 for percent in (50, 99, 100))
            ratio = p99 / 1e3 / bare_s
            count = len(kinds[kind])
            print(f"| {during} | {kind} | {count} | {p50:.1f} ms | {p99:.1f} ms | {most:.1f} ms | {ratio:.1f} |")


if __name__ == "__main__":
    main()
