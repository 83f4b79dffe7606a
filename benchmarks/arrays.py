"""How long arrays take: handing one in, and listing ten of them beside many jobs that have ended.

    python benchmarks/arrays.py [--elements 100000] [--arrays 10] [--ended 100000] [--runs 7] [--state DIR]

A real scheduler process on loopback over a SQLite store that is filled beforehand (kept with --state): its ended jobs
are the elements of arrays that have ended. Wall time is what a user waits; CPU time is what other load on the machine
does not stretch. The peer is the same number of jobs in one batch, a tenth of them measured. The exit code is 1 when
handing an array in takes a second of CPU time, or `colane ps` 300 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import httpx

from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import FINISHED_JOBS, META, Put, Transaction, job_key

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.listings import (  # noqa: E402
    BARE,
    DATABASE,
    ENDED,
    JOB,
    NODE,
    RUNNING,
    SERVE,
    TOKEN,
    row,
    run,
    serving,
    until_up,
)

SUBMIT_MAX_MS, LIST_MAX_MS = 1_000.0, 300.0
PER_ARRAY = 1_000
"""Elements of each array that has ended."""


def main() -> int:
    """Fill a store where there is none, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--arrays", type=int, default=10)
    parser.add_argument("--ended", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--state", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = given.state or Path(folder)
        state.mkdir(parents=True, exist_ok=True)
        if not (state / DATABASE).exists():
            asyncio.run(fill(state / DATABASE, given.arrays, given.elements, given.ended))
        return measured(state, given.elements, given.runs)


async def fill(path: Path, arrays: int, elements: int, ended: int) -> None:
    """Put ended arrays of a thousand elements into a store, copies of one that really ran, and live ones after them."""
    store = SqliteStore(path)
    async with serving(store) as http:
        for address, body in (("/node", NODE), ("/job", {**JOB, "array": "0"})):
            (await http.post(address, json=body)).raise_for_status()
        of_element = [{**RUNNING, "jobs": [{**RUNNING["jobs"][0], "id": 2}]}, {**ENDED, "id": 2}]  # type: ignore[index]
        for address, body in zip(("/node/n1/report", "/finished_job"), of_element, strict=True):
            (await http.post(address, json=body)).raise_for_status()
    array, element = (dict(store.get(FINISHED_JOBS, job_key(job)) or {}) for job in (1, 2))
    for first in range(1, ended + 1, PER_ARRAY + 1):
        numbers = {"indexes": f"0-{PER_ARRAY - 1}", "size": PER_ARRAY, "succeeded": PER_ARRAY}
        job = {**array["job"], "id": first, "array": {**array["job"]["array"], **numbers}}
        puts = [Put(FINISHED_JOBS, job_key(first), {**array, "job": job})]
        for index in range(PER_ARRAY):
            one = {**element["job"], "id": first + 1 + index, "element": {"array": first, "index": index}}
            puts.append(Put(FINISHED_JOBS, job_key(first + 1 + index), {**element, "job": one}))
        store.commit(Transaction(puts))
    counters = dict(store.get(META, "counters") or {})
    store.commit(Transaction([Put(META, "counters", {**counters, "next_job_id": ended + 2 * PER_ARRAY})]))
    async with serving(store) as http:
        for _ in range(arrays):
            (await http.post("/job", json={**JOB, "array": f"0-{elements - 1}%8"})).raise_for_status()
    store.close()


def measured(state: Path, elements: int, runs: int) -> int:
    """Measure commands and addresses of a scheduler process on this state."""
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(state)])
    try:
        url = until_up(state, server.pid)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"COLANE_URL": url, "COLANE_TOKEN": TOKEN}
        colane = [sys.executable, "-m", "colane.cli"]
        print("| what | wall, median (ms) | CPU of the client, median (ms) |\n|---|---|---|")
        row("Python with the same libraries", runs, lambda: run([sys.executable, "-c", BARE], env))
        lists = [
            row(f"`colane {' '.join(words)}`", runs, partial(run, [*colane, *words], env))
            for words in (["ps"], ["ps", "--all"], ["ps", "--elements"])
        ]
        words = ["submit", "--gpus", "1", "--array", f"0-{elements - 1}%8", "--", "true"]
        handed_in = row(f"`colane {' '.join(words)}`", runs, partial(run, [*colane, *words], env))
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120) as http:
            for path in ("/listing", "/listing?ended=true", "/health"):
                row(f"`GET {path}`", runs, partial(http.get, path))
            began_s = time.perf_counter()
            http.post("/jobs", json=[JOB] * (elements // 10)).raise_for_status()
            print(
                f"| peer: `POST /jobs` with {elements // 10:,} jobs | {(time.perf_counter() - began_s) * 1e3:.0f} | |"
            )
    finally:
        server.terminate()
        server.wait()
    return int(max(lists) > LIST_MAX_MS or handed_in > SUBMIT_MAX_MS)


if __name__ == "__main__":
    sys.exit(main())
