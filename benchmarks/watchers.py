"""What people who look at the page cost the scheduler, while each second a job comes and one goes.

    python -m benchmarks.watchers [--watchers 10] [--jobs 10000] [--seconds 20]

A real scheduler with so many waiting jobs, asked by as many streams as pages of the queue ask; CPU time of its process,
less what it takes without them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import httpx
from benchmarks.agent_idle import cpu_s
from tests.server.harness import SLEEP, node
from tests.server.processes import Scheduler, scheduler

AT_ONCE: Final = 2_000
QUERY: Final = "first=0&limit=100&overview=true"
SETTLED_S: Final = 5.0
"""First answers, which are whole, are not counted."""


class Watcher(threading.Thread):
    """One page: reads its stream to the end, and counts what it is told."""

    def __init__(self, running: Scheduler) -> None:
        super().__init__(daemon=True)
        self.changes = 0
        self._client = httpx.Client(base_url=running.url, headers=dict(running.http.headers), timeout=None)  # noqa: S113

    def run(self) -> None:
        """Read."""
        try:
            with self._client.stream("GET", f"/live?{QUERY}") as answer:
                for line in answer.iter_lines():
                    self.changes += line == "event: change"
        except httpx.HTTPError:
            return  # the scheduler has ended


def used_ratio(running: Scheduler, seconds: float) -> float:
    """CPU time of the scheduler over a while in which a job comes and one goes each second, as a part of a core."""
    began_s, began_cpu_s = time.monotonic(), cpu_s(running.process.pid)
    while time.monotonic() - began_s < seconds:
        job = running.http.post("/job", json=SLEEP).json()["id"]
        running.http.delete(f"/job/{job}").raise_for_status()
        time.sleep(1.0)
    return (cpu_s(running.process.pid) - began_cpu_s) / (time.monotonic() - began_s)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--watchers", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as state, scheduler(Path(state)) as running:
        running.http.post("/node", json=node()).raise_for_status()
        for first in range(0, asked.jobs, AT_ONCE):
            running.http.post("/jobs", json=[SLEEP] * min(AT_ONCE, asked.jobs - first)).raise_for_status()
        time.sleep(SETTLED_S)
        without = used_ratio(running, asked.seconds)
        watchers = [Watcher(running) for _ in range(asked.watchers)]
        for watcher in watchers:
            watcher.start()
        time.sleep(SETTLED_S)
        told = sum(watcher.changes for watcher in watchers)
        beside = used_ratio(running, asked.seconds)
        told = sum(watcher.changes for watcher in watchers) - told
    print(f"{asked.jobs} jobs wait, load {os.getloadavg()[0]:.1f}: without them {without:.1%} of a core,")
    print(f"with {asked.watchers} watchers {beside:.1%}: {beside - without:.1%} for them, who were told {told} changes")


if __name__ == "__main__":
    main()
