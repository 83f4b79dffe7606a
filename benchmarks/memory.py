"""Memory of scheduler and agent over many short jobs: it stays where it is, or something is kept for every job.

Real processes on loopback with their own defaults (`colane server`, `colane agent` with two cpu devices): `true`, two
of three without a GPU, each 50th a program that makes steps, of 50 families. A hundred wait at any moment. Printed
every 1,000 jobs: memory of each process (PSS: resident, what is shared in parts), descriptors, and size of the
scheduler's store. Exits with 1 where either grows by more than 10 % over the second half.

    python benchmarks/memory.py [--jobs 10000] [--every 1000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from colane.client.client import Client
from colane.client.locate import TOKEN_FILE, read_token

WAITING = 100
FAMILIES = 50
STEPPING_EACH = 50
GROWTH_MAX = 1.1
LOOK_S = 0.25
STEPS = "import colane.adaptor as c; s = c.attach(total_steps=200); [s.step() for _ in range(200)]"
HEAD = "| jobs done | scheduler: memory, descriptors | agent: the same | store | after |\n|---|---|---|---|---|\n"


class Sample(NamedTuple):
    """Memory of both after so many jobs."""

    jobs: int
    scheduler_bytes: int
    agent_bytes: int


@contextmanager
def started(state: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Start a part of Colane, and end it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COLANE_")}
    env = {**plain, "COLANE_OTHERS": "ignore", **variables}
    command = [sys.executable, "-m", "colane.cli", *words, "--state", str(state)]
    with (state.parent / f"{words[0]}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def job(number: int) -> dict[str, Any]:
    """One of the jobs."""
    steps = number % STEPPING_EACH == 0
    return {
        "name": f"job-{number}",
        "command": [sys.executable, "-c", STEPS] if steps else ["true"],
        "gpus": int(steps or number % 3 == 0),
        "workdir": "/",
        "env": {"PATH": os.environ["PATH"], "NUMBER": str(number)},
        "family": f"family-{number % FAMILIES}",
        "labels": {"number": str(number)},
    }


def run(jobs: int, every: int, root: Path) -> list[Sample]:
    """Have the jobs done, and look at both now and then."""
    with started(root / "s", "server", "--port", "0") as scheduler:
        assert scheduler.stdout is not None
        url = scheduler.stdout.readline().split(" on ", 1)[1].split(" ", 1)[0]
        token = read_token(root / "s" / TOKEN_FILE) or ""
        words = ("agent", "--name", "node-1", "--devices", "cpu:2:1GB")
        with started(root / "a", *words, COLANE_URL=url, COLANE_TOKEN=token) as agent, Client(url, token) as client:
            while not client.health()["nodes"]:
                if agent.poll() is not None:
                    raise SystemExit((root / "agent.log").read_text())
                time.sleep(LOOK_S)
            return list(_samples(client, jobs, every, (scheduler.pid, agent.pid), root))


def _samples(client: Client, jobs: int, every: int, pids: tuple[int, int], root: Path) -> Iterator[Sample]:
    submitted, told, begun_s = 0, 0, time.monotonic()
    while told < jobs:
        health = client.health()
        left = health["queued"] + health["running"]
        more = min(WAITING - health["queued"], jobs - submitted)
        if more > 0:
            client.submit_batch([job(number) for number in range(submitted + 1, submitted + more + 1)])
            submitted, left = submitted + more, left + more
        if submitted - left >= told + every or (submitted - left == jobs > told):
            told = (submitted - left) // every * every if submitted - left < jobs else jobs
            yield _sample(told, pids, root, time.monotonic() - begun_s)
        time.sleep(LOOK_S)


def _sample(jobs: int, pids: tuple[int, int], root: Path, took_s: float) -> Sample:
    parts = [psutil.Process(pid) for pid in pids]
    used = [part.memory_full_info().pss for part in parts]
    fds = [part.num_fds() for part in parts]
    store_bytes = sum(path.stat().st_size for path in (root / "s").glob("colane.db*"))
    sys.stdout.write(
        f"| {jobs:,} | {used[0] / 1e6:.1f} MB, {fds[0]} | {used[1] / 1e6:.1f} MB, {fds[1]} "
        f"| {store_bytes / 1e6:.1f} MB | {took_s:.0f} s |\n"
    )
    sys.stdout.flush()
    return Sample(jobs, *used)


def main() -> int:
    """Return 1 where memory grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1_000)
    asked = parser.parse_args()
    sys.stdout.write(
        "| jobs done | scheduler: memory, descriptors | agent: the same | store | after |\n|---|---|---|---|---|\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        samples = run(asked.jobs, asked.every, Path(folder))
    middle, last = samples[len(samples) // 2 - 1] if len(samples) > 1 else samples[0], samples[-1]
    growth = {
        "scheduler": last.scheduler_bytes / middle.scheduler_bytes,
        "agent": last.agent_bytes / middle.agent_bytes,
    }
    sys.stdout.write(
        f"over the second half: {', '.join(f'{name} {ratio - 1:+.1%}' for name, ratio in growth.items())}\n"
    )
    return int(max(growth.values()) > GROWTH_MAX)


if __name__ == "__main__":
    sys.exit(main())
