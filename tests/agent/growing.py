"""A job that makes processes and threads all the time, under a real agent that gives it other cores."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from tests.agent.agents import Running, running
from tests.agent.fake_scheduler import FakeScheduler

GROWING_JOB = str(Path(__file__).with_name("growing_job.py"))


def allowed(supervisor_pid: int) -> dict[int, set[int]]:
    """Cores of every thread below a supervisor, as the kernel shows them."""
    below = processes.read_tree(supervisor_pid).processes[1:]
    threads = [(process.pid, tid) for process in below for tid in thread_ids(process.pid)]
    return {tid: cores for pid, tid in threads if (cores := read_cores(Path(f"/proc/{pid}/task/{tid}/status")))}


def thread_ids(pid: int) -> list[int]:
    """Threads of a process; none of one that is gone."""
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def read_cores(status: Path) -> set[int]:
    """What `Cpus_allowed_list` says; nothing of a thread that is gone."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return set()
    (text,) = [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")]
    spans = [part.partition("-") for part in text.split(",")]
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}


def are_on(seen: dict[int, set[int]], cores: set[int]) -> bool:
    return len(seen) > 12 and all(each == cores for each in seen.values())


class GrowingBench:
    """A scheduler that wants one growing job on two devices of a core each, and the agent."""

    def __init__(self, folder: Path, fake: FakeScheduler, agent: Running, client: httpx.AsyncClient) -> None:
        self.folder, self.fake, self.agent, self.client = folder, fake, agent, client

    @property
    def job(self) -> JobDir:
        return JobDir(self.folder / "state" / "jobs" / "7-1")

    def are_on(self, cores: set[int]) -> bool:
        claimed_by = self.job.claimed_by()
        return claimed_by is not None and are_on(allowed(claimed_by.pid), cores)

    async def changes(self, cores: set[int], change: dict[str, Any]) -> float:
        """GateJob something else; seconds from the nudge until all threads are on these cores."""
        self.fake.change(7, **change)
        began_s = time.perf_counter()
        await self.client.post(self.agent.address + "/run", json={})
        await self.agent.until(lambda: self.are_on(cores), f"all are on {cores}")
        return time.perf_counter() - began_s


@asynccontextmanager
async def benched(folder: Path, marker: str, fake: FakeScheduler, cores: Sequence[int]) -> AsyncIterator[GrowingBench]:
    """Have the job run on those cores, or find it again, under a new agent with two devices."""
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}
    if not (folder / "there").exists():
        fake.want(7, sys.executable, GROWING_JOB, str(folder / "there"), env=env, cores=list(cores))
    async with running(folder / "state", fake, devices="cpu:2:1GB") as agent:
        await agent.until(lambda: (folder / "there").exists() and fake.launched(7), "the job is there")
        async with httpx.AsyncClient(trust_env=False) as client:
            yield GrowingBench(folder, fake, agent, client)
