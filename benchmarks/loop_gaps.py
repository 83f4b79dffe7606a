"""For how long a scheduler's event loop is held at once, by each of what is large: nothing else is answered meanwhile.

A real scheduler process on loopback under the default policy, with its SQLite store. In its event loop a beat comes
every 5 ms; where it comes late, the loop was held: by how much, and how much CPU the loop's thread took meanwhile,
which other programs on the machine do not lengthen. Printed are the longest gap of each case by either. `--stacks N`
samples what the loop's thread was at in gaps above 20 ms, and prints the N innermost calls of the package.

    python -m benchmarks.loop_gaps [--jobs 4000] [--only GROUP]... [--stacks 0] [--policy colane]
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
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from benchmarks.submit_rest import JOB, TOKEN

PROGRAM = """
import asyncio, json, sys, threading, time
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server
from colane.server.writer.driver import LiveDriver

state, out, policy, depth = sys.argv[1], open(sys.argv[2], "a", buffering=1), sys.argv[3], int(sys.argv[4])
BEAT_S, LATE_S = 0.005, 0.02
last = [time.monotonic()]

async def beat():
    ran_s = time.thread_time()
    while True:
        await asyncio.sleep(BEAT_S)
        now_s, now_ran_s = time.monotonic(), time.thread_time()
        gap_s = now_s - last[0] - BEAT_S
        if gap_s > BEAT_S:
            out.write(json.dumps({"at_s": now_s, "gap_s": gap_s, "cpu_s": now_ran_s - ran_s}) + "\\n")
        last[0], ran_s = now_s, now_ran_s

def look(thread):
    while True:
        time.sleep(0.005)
        if time.monotonic() - last[0] < LATE_S + BEAT_S:
            continue
        frame, calls = sys._current_frames()[thread], []
        while frame is not None and len(calls) < depth:
            name = frame.f_code.co_filename
            if "colane" in name or not calls:
                calls.append(f"{Path(name).stem}.{frame.f_code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        out.write(json.dumps({"at_s": time.monotonic(), "calls": calls}) + "\\n")

run = LiveDriver.run
async def run_with_beat(self):
    beating = asyncio.create_task(beat())
    if depth:
        threading.Thread(target=look, args=(threading.get_ident(),), daemon=True).start()
    try:
        await run(self)
    finally:
        beating.cancel()
LiveDriver.run = run_with_beat
run_server(ServerConfig(state_dir=Path(state), port=0, policy=policy, token="benchmark"))
"""

GB = 10**9
NODE = {
    "name": "n1",
    "agent_id": "a1",
    "address": "http://127.0.0.1:1",
    "gpus": [{"index": n, "uuid": f"g{n}", "type": "V100", "memory_bytes": 16 * GB} for n in range(8)],
    "cores": list(range(64)),
    "host_memory_bytes": 256 * GB,
}
SETTLE_S = 1.0
JSON_TYPE = {"Content-Type": "application/json"}


@contextmanager
def scheduler(state: Path, policy: str, stacks: int) -> Iterator[tuple[str, Path]]:
    """Start one; its URL, and where it writes gaps."""
    gaps = state / "gaps.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(state), str(gaps), policy, str(stacks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urllib.parse.urlsplit(process.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0])
            yield f"http://{url.hostname}:{url.port}", gaps
        finally:
            process.terminate()


class Probe:
    """Asks for what is large, and tells how long the loop was held meanwhile."""

    def __init__(self, url: str, gaps: Path, jobs: int) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300.0)
        self._gaps, self.jobs = gaps, jobs

    async def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """One request."""
        content = None if body is None else json.dumps(body)
        answer = await self._http.request(method, path, content=content, headers=JSON_TYPE if content else None)
        assert answer.status_code == 200, answer.text[:500]
        return answer

    async def batch(self, jobs: list[Any]) -> list[int]:
        """Submit a batch."""
        found: list[int] = (await self.ask("POST", "/jobs", jobs)).json()["ids"]
        return found

    async def case(self, name: str, act: Callable[[], Awaitable[object]]) -> None:
        """Print what one case held the loop."""
        await asyncio.sleep(SETTLE_S)
        began_s = time.monotonic()
        await act()
        took_s = time.monotonic() - began_s
        await asyncio.sleep(SETTLE_S)
        seen = [json.loads(line) for line in self._gaps.read_text().splitlines()]
        seen = [each for each in seen if each["at_s"] >= began_s]
        gaps = [each for each in seen if "gap_s" in each]
        wall_ms = sorted((each["gap_s"] * 1e3 for each in gaps), reverse=True)[:3]
        cpu_ms = sorted((each["cpu_s"] * 1e3 for each in gaps), reverse=True)[:3]
        shown = (", ".join(f"{each:.0f}" for each in row) for row in (wall_ms, cpu_ms))
        print(f"| {name} | {took_s * 1e3:.0f} ms | {' | '.join(shown)} |", flush=True)
        calls = Counter(" < ".join(each["calls"]) for each in seen if "calls" in each)
        for text, count in calls.most_common(8):
            print(f"    {count * 5} ms  {text}", flush=True)

    async def clear(self) -> None:
        """No job waits any more."""
        await self.ask("DELETE", "/jobs")

    async def submissions(self) -> None:
        """Batches of each kind."""
        jobs, plain = self.jobs, {**JOB, "gpu_memory_bytes": 2 * GB}
        kinds: dict[str, list[Any]] = {
            "plain": [plain] * jobs,
            "that begin later": [{**plain, "begin": "now+1h"}] * jobs,
            "each after the one before": [plain, *[{**plain, "after": "ok:@"}] * (jobs - 1)],
            "arrays of 3": [{**plain, "array": "1-3"}] * jobs,
            "in measured sets of 2": [
                {**plain, "gpu_memory_bytes": GB, "measurement_group": f"s{n // 2}"} for n in range(jobs)
            ],
            "each of a command of its own": [
                {**plain, "command": ["python", "train.py", "--lr", f"{n}"], "name": f"n{n}"} for n in range(jobs)
            ],
            "refused for the last": [*[plain] * (jobs - 1), {**plain, "workdir": "here"}],
            "not what is asked for": [*[plain] * (jobs - 1), {**plain, "gpus": "none at all"}],
            "with a field that is none": [{**plain, "duration": 60}] * jobs,
        }
        for name, body in kinds.items():
            await self.case(f"a batch of {jobs:,} {name}", partial(self._try, body))
            await self.clear()

    async def deadlines(self) -> None:
        """Batches whose deadlines can be kept."""
        for jobs in (64, 256):
            body = [{**JOB, "gpu_memory_bytes": GB, "time_limit": "60s", "deadline": "30d"}] * jobs
            await self.case(f"a batch of {jobs:,} with deadlines", partial(self._try, body))
            await self.clear()

    async def _try(self, body: list[Any]) -> None:
        answer = await self._http.post("/jobs", content=json.dumps(body), headers=JSON_TYPE)
        if answer.status_code != 200:
            print(f"    {answer.status_code} {answer.text[:200]}")

    async def readings(self) -> None:
        """Everything that lists jobs."""
        for _ in range(10_000 // 1_000):
            await self.batch([JOB] * 1_000)
        last = (await self.ask("GET", "/page_rows?limit=0")).json()["event"]
        for path in (
            "/jobs", "/live_jobs", "/listing?limit=10000", "/overview", "/page_rows?overview=true", "/metrics",
            "/usage", "/job/1/why", f"/events?after=0&until={last}", "/timeline?limit=10000",
            "/usage/ended?days=28",
        ):  # fmt: skip
            await self.case(f"GET {path.split('&until')[0]}", partial(self.ask, "GET", path))
        await self.case("POST /plan, one job", lambda: self.ask("POST", "/plan", [JOB]))
        await self.case("DELETE /jobs of 10,000", lambda: self.ask("DELETE", "/jobs"))
        for path in ("/finished_jobs", "/listing?limit=10000&ended=true", "/usage", "/usage/ended?days=28"):
            await self.case(f"GET {path}, 10,000 ended", partial(self.ask, "GET", path))

    async def acts(self) -> None:
        """What changes many jobs at once."""
        jobs = self.jobs
        ids = await self.batch([JOB] * jobs)  # some of which start, and cannot be suspended
        await self.case(f"suspend {jobs:,} jobs, 32 clients", lambda: self._each("POST", "suspend", ids))
        await self.case(f"resume {jobs:,} jobs, 32 clients", lambda: self._each("POST", "resume", ids))
        await self.case(f"DELETE /job of {jobs:,} jobs, 32 clients", lambda: self._each("DELETE", "", ids))
        [array] = await self.batch([{**JOB, "array": f"1-{jobs}"}])
        await self.case(f"suspend an array of {jobs:,}", lambda: self._each("POST", "suspend", [array]))
        await self.case(f"resume an array of {jobs:,}", lambda: self._each("POST", "resume", [array]))
        await self.case(f"DELETE an array of {jobs:,}", lambda: self.ask("DELETE", f"/job/{array}"))
        first = await self.batch([JOB])
        await self.batch([{**JOB, "after": f"ok:{first[0]}"}] * jobs)
        await self.case(f"DELETE of a job that {jobs:,} wait for", lambda: self.ask("DELETE", f"/job/{first[0]}"))
        await self.clear()

    async def _each(self, method: str, what: str, ids: list[int]) -> None:
        left = iter(ids)

        async def act() -> None:
            for job_id in left:
                path, content = f"/job/{job_id}/{what}".rstrip("/"), "{}" if method == "POST" else None
                await self._http.request(method, path, content=content, headers=JSON_TYPE)

        await asyncio.gather(*(act() for _ in range(32)))


GROUPS = ("submissions", "deadlines", "readings", "acts")


async def measure(url: str, gaps: Path, jobs: int, groups: Sequence[str]) -> None:
    """All cases of some groups."""
    probe = Probe(url, gaps, jobs)
    await probe.ask("POST", "/node", NODE)
    for group in groups:
        await getattr(probe, group)()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--only", choices=GROUPS, action="append")
    parser.add_argument("--stacks", type=int, default=0)
    parser.add_argument("--policy", default="colane")
    args = parser.parse_args()
    print(f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {args.policy}\n")
    print("| case | answered in | longest gaps, ms | of which CPU of the loop, ms |\n" + "| --- " * 4 + "|")
    with tempfile.TemporaryDirectory() as name, scheduler(Path(name), args.policy, args.stacks) as (url, gaps):
        asyncio.run(measure(url, gaps, args.jobs, args.only or GROUPS))


if __name__ == "__main__":
    main()
