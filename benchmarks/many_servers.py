"""Many small servers on one device: do all start and stay, are their lanes safe, and what does that add to answers?

    python -m benchmarks.many_servers [--servers 42] [--rate 0.5] [--seconds 40] [--policies pack,fair,colane]

Each is a process of its own that answers so many requests a second, at random times that the same seed gives it in each
run, each with a fixed piece of work of a third of a millisecond, and says them by `request`. First they run as plain
processes, without Colane, then under each policy through a real scheduler and a real agent: `pack` gives each a lane
of its own, under `fair` all take turns in one, `colane` is the default. Printed are the times of all answers, from when
the request came, and what the scheduler says at the end: how many run, in how many lanes, and what they may use of the
device at most (paper
B: P of all and the largest E of each lane). Exits with 1 where a server is missing, or lanes are not safe.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from benchmarks.handoff import at
from benchmarks.whole_path import process, until

ROOT = Path(__file__).parents[1]
SERVER = str(ROOT / "benchmarks" / "small_server.py")
START_MAX_S = 300.0
MEMORY_BYTES = 64 * 2**20
DEVICE = "cpu:1:4GB"
TOKEN = "benchmark"  # noqa: S105 - of a scheduler that lives for the measurement
LATENCY_S = 0.1

SCHEDULER = """
import sys
from pathlib import Path
from colane.server.config import ServerConfig
from colane.server.main import run_server

def main():
    run_server(ServerConfig(state_dir=Path(sys.argv[1]), port=0, policy=sys.argv[2], token="benchmark"))
"""
AGENT = f"""
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent

def main():
    run_agent(AgentConfig(name="n0", scheduler_url=sys.argv[2], state_dir=Path(sys.argv[1]), token="benchmark",
                          devices="{DEVICE}", stop_jobs=True))
"""


def command(path: Path, rate: float, seed: int) -> list[str]:
    """A server."""
    return [sys.executable, SERVER, str(path), str(rate), str(seed)]


def answers_s(notes: Sequence[Path], seconds: float) -> list[float]:
    """Times of all answers of the next seconds, shortest first, once each server has answered."""
    until_s = time.monotonic() + START_MAX_S
    while not all(note.exists() and note.stat().st_size for note in notes):
        if time.monotonic() > until_s:
            raise SystemExit("not every server has answered")
        time.sleep(0.1)
    from_s = time.monotonic()
    time.sleep(seconds)
    to_s = time.monotonic()
    found = [tuple(map(float, line.split())) for note in notes for line in note.read_text().split("\n")[:-1]]
    return sorted(ended_s - came_s for came_s, ended_s in found if came_s >= from_s and ended_s <= to_s)


@contextmanager
def plain(servers: int, rate: float, folder: Path) -> Iterator[list[Path]]:
    """Run them without Colane."""
    notes = [folder / f"server-{number}" for number in range(servers)]
    with ExitStack() as stack:
        for number, note in enumerate(notes):
            one = stack.enter_context(subprocess.Popen(command(note, rate, number), cwd=ROOT))
            stack.callback(one.kill)
        yield notes


@contextmanager
def service(policy: str, folder: Path) -> Iterator[httpx.Client]:
    """Start a scheduler and an agent with one device."""
    with ExitStack() as stack:
        first = stack.enter_context(process(SCHEDULER, str(folder / "scheduler"), policy, profile=None))
        assert first.stdout is not None
        url = first.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0].strip()
        stack.enter_context(process(AGENT, str(folder / "agent"), url, profile=None))
        http = stack.enter_context(httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60))
        until(lambda: http.get("/health").json()["nodes"] == 1)
        yield http


def submit(http: httpx.Client, servers: int, rate: float, folder: Path) -> list[Path]:
    """Submit them; gives where they take their notes."""
    notes = [folder / f"server-{number}" for number in range(servers)]
    jobs = [
        {"command": command(note, rate, number), "workdir": str(ROOT), "family": "small", "kind": "inference",
         "latency_s": LATENCY_S, "gpu_memory_bytes": MEMORY_BYTES}
        for number, note in enumerate(notes)
    ]  # fmt: skip
    http.post("/jobs", json=jobs).raise_for_status()
    return notes


def _is_whole(node: Mapping[str, Any], servers: int) -> bool:
    """Print what of them runs in which lanes, and whether all are there in their first attempt, and lanes are safe."""
    there = [job for job in node["jobs"] if job["run"] and job["attempt"] == 1 and not job["paused"]]
    lanes: dict[int, list[tuple[int, int]]] = {}
    for job in there:
        lanes.setdefault(job["slots"][0]["lane"], []).append(tuple(job["memory"]))
    persistent = sum(persistent for members in lanes.values() for persistent, _ in members)
    needed = persistent + sum(max(ephemeral for _, ephemeral in members) for members in lanes.values())
    capacity = node["gpus"][0]["memory_bytes"]
    print(
        f"  {len(there)} of {servers} run in their first attempt, {len(lanes)} lanes with at most "
        f"{max(map(len, lanes.values()), default=0)} each, {needed / 1e9:.2f} of {capacity / 1e9:.2f} GB at most",
        *node["messages"], sep="\n  ",
    )  # fmt: skip
    return len(there) == servers and needed <= capacity


def line(name: str, took: Sequence[float]) -> str:
    """As people read it."""
    parts = ", ".join(
        f"{part} {at(took, ratio) * 1e3:.2f} ms" for part, ratio in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    )
    return f"{name:<20} {len(took):>6} answers: {parts}, most {took[-1] * 1e3:.1f} ms, load {os.getloadavg()[0]:.1f}"


def main() -> int:
    """Measure and print; 1 where a server is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=42)
    parser.add_argument("--rate", type=float, default=0.5, help="requests a second of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--policies", default="pack,fair,colane")
    given = parser.parse_args()
    is_missing = False
    with tempfile.TemporaryDirectory() as name, plain(given.servers, given.rate, Path(name)) as notes:
        print(line("without Colane", answers_s(notes, given.seconds)), flush=True)
    for policy in given.policies.split(","):
        with tempfile.TemporaryDirectory() as name, service(policy, Path(name)) as http:
            notes = submit(http, given.servers, given.rate, Path(name))
            print(line(policy, answers_s(notes, given.seconds)), flush=True)
            (node,) = http.get("/nodes").json()
            is_missing |= not _is_whole(node, given.servers)
    return int(is_missing)


if __name__ == "__main__":
    sys.exit(main())
