"""What it costs to foresee the starts of 10,000 jobs that wait on 1,000 nodes of 8 GPUs.

    python -m benchmarks.foreseen [WAITING [NODES]]    # CPU seconds of one look
    python -m benchmarks.foreseen --server [WAITING [NODES]]    # beside decisions of a scheduler: some 10 minutes

The second fills a real scheduler process on loopback and has jobs end, start and come, by turns with looks and without
(`--spans` of each, of `--seconds`): CPU and wall time of its decisions, what a look takes of its copy and of the event
loop, and how old what is told of a job was at most. Exits with 1 where that is more than 30 s, or where decisions take
over 2 % more CPU with looks than without.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import fmean
from time import process_time
from typing import Any, Final

import httpx
from benchmarks.listings import until_up

from colane.foresee.foreseer import Foreseer
from colane.foresee.scene import PoolScene, PresentJob

AGE_MAX_S: Final = 30.0
SLOWER_MAX: Final = 1.02
GPUS: Final = 8  # of a node
GAP_S: Final = 0.1  # between two jobs that end
BATCH: Final = 1_000
TOKEN: Final = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement
SERVE: Final = """
import json, sys, time
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server
from colane.server.tending.foreseeing import Foreseeing
from colane.server.writer.driver import LiveDriver

state, policy = Path(sys.argv[1]), sys.argv[2]
decide, look, changed, rows = LiveDriver._decide, Foreseeing.look, Foreseeing._has_changed, []

def decides(driver, turn):
    at, cpu, wall = time.time(), time.thread_time(), time.perf_counter()
    found = decide(driver, turn)
    if turn.events:
        rows.append(("decision", at, time.thread_time() - cpu, time.perf_counter() - wall, 0.0))
    return found

async def looks(foreseeing):
    at, cpu, wall = time.time(), time.process_time(), time.perf_counter()
    took_s = await look(foreseeing)
    rows.append(("look", at, took_s, time.perf_counter() - wall, time.process_time() - cpu))
    return took_s

LiveDriver._decide, Foreseeing.look = decides, looks
Foreseeing._has_changed = lambda one: (state / "looks").exists() and changed(one)
try:
    run_server(ServerConfig(state_dir=state, port=0, policy=policy, token="benchmark", node_timeout_s=1e6))
finally:
    (state / "rows.json").write_text(json.dumps(rows))
"""


def look(waiting: int, nodes: int) -> tuple[float, int]:
    """CPU seconds, and how many starts were said."""
    random, foreseer, present = Random(1), Foreseer(), list[PresentJob]()  # noqa: S311 - no secret
    gpus = GPUS * nodes
    for job in range(2000):
        owner, at_s = f"user-{job % 200}", 300.0 * job
        foreseer.submitted(job, owner, 1, at_s)
        scene = PoolScene(at_s, gpus, [PresentJob(job, owner, 1, 0.0, None, None, None, False, False, (0.0,))])
        for said in foreseer.say(scene, [job]):
            foreseer.keep(said)
        foreseer.started(job, at_s + random.lognormvariate(6, 2))
        foreseer.ended(job, random.lognormvariate(8, 2), at_s + 10_000)
    for job in range(2000, 2000 + gpus + waiting):
        owner, asks = f"user-{job // 50 % 200}", random.choice((1, 1, 1, 2, 4))
        runs = job < 2000 + gpus
        one = PresentJob(job, owner, 1 if runs else asks, 900.0 * runs, None, None, None, runs, runs, (0.0,))
        foreseer.submitted(job, owner, one.gpus, 600_000.0 + job)
        present.append(one)
    began_s = process_time()
    found = foreseer.board(PoolScene(700_000.0, gpus, present))
    return process_time() - began_s, len(found)


class Cluster:
    """All nodes and users of a scheduler, which start no process."""

    def __init__(self, http: httpx.Client, nodes: int) -> None:
        self._http, self._random = http, Random(1)  # noqa: S311 - no secret
        self._running: dict[str, dict[int, int]] = {}
        for number in range(nodes):
            name = f"n{number}"
            gpus = [
                {"index": gpu, "uuid": f"{name}-{gpu}", "type": "A100", "memory_bytes": 80 * 10**9}
                for gpu in range(GPUS)
            ]
            self._post("/node", {"name": name, "agent_id": name, "address": "http://127.0.0.1:1", "cores": [*range(64)],
                                 "host_memory_bytes": 10**12, "gpus": gpus})  # fmt: skip
            self._running[name] = {}
        self._submit([1] * GPUS * nodes)
        for name in self._running:
            self._report(name)

    def wait(self, jobs: int) -> None:
        """Have so many jobs wait."""
        self._last = self._submit([self._random.choice((1, 1, 1, 2, 4)) for _ in range(jobs)])

    def goes_on(self) -> None:
        """A job ends, what may start does, and another comes."""
        name = self._random.choice([name for name, running in self._running.items() if running])
        job = self._random.choice([*self._running[name]])
        self._post("/finished_job", {"id": job, "attempt": self._running[name].pop(job), "node": name, "agent_id": name,
                                     "end_s": time.time(), "outcome": "exited", "exit_code": 0})  # fmt: skip
        self._report(name)
        self._report(name)
        self._submit([self._random.choice((1, 1, 1, 2, 4))])

    def age_s(self) -> float:
        """How old is what is told of the start of the last job that waited at first."""
        answer = self._http.get(f"/job/{self._last}")
        answer.raise_for_status()
        said = answer.json()["facts"]["expected_start"]
        return float("inf") if said is None or said["said_s"] is None else time.time() - float(said["said_s"])

    def _submit(self, sizes: list[int]) -> int:
        """The number of the last job."""
        last = 0
        for first in range(0, len(sizes), BATCH):
            numbers = [self._random.randrange(200) for _ in sizes[first : first + BATCH]]
            last = self._post("/jobs", [
                {"command": ["train"], "workdir": "/", "gpus": gpus, "share": False, "user": f"u{at}",
                 "family": f"f{at}"}
                for gpus, at in zip(sizes[first : first + BATCH], numbers, strict=True)
            ])["ids"][-1]  # fmt: skip
        return last

    def _report(self, name: str) -> None:
        running, now_s = self._running[name], time.time()
        jobs = [{"id": job, "attempt": attempt, "phase": "launched", "pid": 1, "start_s": now_s}
                for job, attempt in running.items()]  # fmt: skip
        answer = self._post(f"/node/{name}/report", {"agent_id": name, "at_s": now_s, "jobs": jobs})
        running.update({job["id"]: job["attempt"] for job in answer["jobs"] if job["run"]})

    def _post(self, path: str, body: object) -> Any:  # noqa: ANN401 - as the answer is
        answer = self._http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def scheduler(state: Path, policy: str) -> Iterator[httpx.Client]:
    """A scheduler process, and a client of it."""
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(state), policy])
    try:
        url = until_up(state, server.pid)
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120) as http:
            yield http
    finally:
        server.terminate()
        server.wait()


def beside_decisions(asked: argparse.Namespace) -> bool:
    """Measure looks beside the decisions of a scheduler, print it, and tell whether both are as they should be."""
    with tempfile.TemporaryDirectory(prefix="colane-foreseen-") as folder:
        state, spans, ages_s = Path(folder), list[tuple[bool, float, float]](), list[float]()
        with scheduler(state, asked.policy) as http:
            cluster = Cluster(http, asked.nodes)
            cluster.wait(asked.waiting)
            for span in range(2 * asked.spans):
                is_on, began_s = span % 2 == 0, time.time()
                (state / "looks").touch() if is_on else (state / "looks").unlink()
                first_s, asks_s = float("inf"), began_s
                while (now_s := time.time()) < began_s + asked.seconds:
                    cluster.goes_on()
                    if is_on and now_s >= asks_s:
                        asks_s, age_s = now_s + 1.0, cluster.age_s()
                        first_s = min(first_s, now_s) if age_s < now_s - began_s else first_s
                        ages_s += [age_s] if now_s >= first_s else []
                    time.sleep(GAP_S)
                spans.append((is_on, began_s, time.time()))
        rows = json.loads((state / "rows.json").read_text())
    return _told(rows, spans, max(ages_s))


def _told(
    rows: list[tuple[str, float, float, float, float]], spans: list[tuple[bool, float, float]], age_s: float
) -> bool:
    """Print what was measured."""
    means = {True: list[tuple[float, float]](), False: list[tuple[float, float]]()}
    for is_on, began_s, end_s in spans:
        there = [row for row in rows if row[0] == "decision" and began_s <= row[1] < end_s]
        means[is_on].append((fmean(row[2] for row in there), fmean(row[3] for row in there)))
        cpu_ms, wall_ms = (1000 * one for one in means[is_on][-1])
        print(f"looks {'on ' if is_on else 'off'}: {len(there)} decisions of {cpu_ms:.3f} ms of CPU, {wall_ms:.3f} ms")
    ratio = [fmean(one[at] for one in means[True]) / fmean(one[at] for one in means[False]) for at in range(2)]
    looks = [row for row in rows if row[0] == "look"]
    cpu_s, wall_s, own_s = (fmean(column) for column in zip(*[row[2:] for row in looks], strict=True))
    print(f"{len(looks)} looks: {cpu_s:.2f} s of CPU of a copy, told after {wall_s:.2f} s, in which the scheduler "
          f"itself took {own_s:.2f} s")  # fmt: skip
    print(f"decisions take {ratio[0]:.3f} times the CPU, {ratio[1]:.3f} times the time; told at most {age_s:.1f} s ago")
    return age_s <= AGE_MAX_S and ratio[0] <= SLOWER_MAX


def main() -> int:
    """Measure one look, or looks beside decisions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("waiting", type=int, nargs="?", default=10_000)
    parser.add_argument("nodes", type=int, nargs="?", default=1_000)
    parser.add_argument("--server", action="store_true", help="beside decisions of a scheduler process")
    parser.add_argument("--policy", default="colane")
    parser.add_argument("--spans", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    if asked.server:
        return int(not beside_decisions(asked))
    cpu_s, said = look(asked.waiting, asked.nodes)
    print(f"{said:,} starts said on {asked.nodes:,} nodes: {cpu_s:.2f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
