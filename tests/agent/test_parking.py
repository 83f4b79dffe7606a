"""Parked jobs on cpu devices: their device is another's, so they wait whatever becomes of the agent."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from tests.agent.agents import agent_process, running, served
from tests.agent.fake_scheduler import FakeScheduler, Object
from tests.agent.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.live, pytest.mark.faults]

JOB = str(Path(__file__).with_name("turn_job.py"))
CORES = sorted(os.sched_getaffinity(0))
SEED, ROUNDS = 20261122, 6
PARKED_CPU_MAX_S = 0.05
"""CPU time of a job that waits without an agent, whose absence it must notice first."""


class Bench:
    """A scheduler that wants one stepping job, and what the job notes."""

    def __init__(self, folder: Path, marker: str) -> None:
        name, _, value = marker.partition("=")
        self.folder, self.fake = folder, FakeScheduler()
        self.env = {"PATH": os.environ["PATH"], name: value}
        self.jobs: list[int] = []

    def want(self, job: int) -> None:
        self.jobs.append(job)
        self.fake.want(job, sys.executable, JOB, str(self.folder / f"notes-{job}"), "0.002", "0", env=self.env)

    def steps(self, job: int) -> int:
        notes = self.folder / f"notes-{job}"
        lines = notes.read_bytes().split(b"\n")[:-1] if notes.exists() else []
        assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1)), "a step is done twice"
        return len(lines)

    def pid(self, job: int) -> int:
        started = JobDir(self.folder / "state" / "jobs" / f"{job}-1").started()
        assert started is not None
        return int(started["pid"])

    def cpu_s(self, job: int) -> float:
        return processes.read_tree(self.pid(job)).cpu_s + _own_cpu_s(self.pid(job))

    def progress(self, job: int) -> Object:
        return dict((self.fake.launched(job) or {}).get("progress") or {})

    def is_parked(self, job: int) -> bool:
        return self.progress(job).get("on_host_bytes") == 0

    def has_gone_on(self, job: int, goal: int) -> bool:
        return self.steps(job) >= goal


def _own_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def bench(tmp_path: Path, marker: str) -> Bench:
    return Bench(tmp_path, marker)


async def test_a_parked_job_waits_without_an_agent_and_comes_back_on_another_device(bench: Bench) -> None:
    bench.want(7)
    state, devices = bench.folder / "state", f"cpu:{min(len(CORES), 2)}:1GB"
    async with running(state, bench.fake, devices=devices) as agent:
        await agent.until(lambda: bench.steps(7) > 3, "it steps")
        bench.fake.pause(7, to_host=True)
        await agent.until(lambda: bench.is_parked(7), "it is parked")
        done = bench.steps(7)
    spent_s, reports = bench.cpu_s(7), len(bench.fake.reports)
    async with running(state, bench.fake, devices=devices) as agent:
        await agent.until(lambda: len(bench.fake.reports) > reports + 2 and bench.is_parked(7), "the next agent")
        assert bench.steps(7) == done, "its device is another's"
        assert bench.cpu_s(7) - spent_s < PARKED_CPU_MAX_S
        bench.fake.change(7, paused=False, to_host=False, slots=[{"gpu": min(len(CORES), 2) - 1, "lane": 3}])
        await agent.until(lambda: bench.has_gone_on(7, done + 5), "it goes on")
        assert os.sched_getaffinity(bench.pid(7)) == set(CORES[len(CORES) // 2 :])
        await agent.until(lambda: not bench.is_parked(7), "it is not parked")
        bench.fake.pause(7, to_host=True)
        await agent.until(lambda: bench.is_parked(7), "it is parked again")
        done = bench.steps(7)
        bench.fake.end(7)
        await agent.until(lambda: (7, 1) in bench.fake.ends, "the end")
        assert bench.steps(7) == done, "it ends where it waits"


async def test_an_idle_job_is_parked_as_it_stands_and_asks_once_it_would_step(bench: Bench) -> None:
    pipe, script = bench.folder / "pipe", str(Path(__file__).with_name("waiting_job.py"))
    os.mkfifo(pipe)
    words = os.fdopen(os.open(pipe, os.O_RDWR), "w", buffering=1)
    bench.jobs.append(7)
    bench.fake.want(7, sys.executable, script, str(bench.folder / "notes-7"), str(pipe), env=bench.env)
    state, devices = bench.folder / "state", "cpu:1:1GB"
    async with running(state, bench.fake, devices=devices) as agent:
        words.write("3\n")
        await agent.until(lambda: bench.progress(7).get("steps") == 3, "it has stepped, and waits for a word")
        assert bench.progress(7)["rest"] == "possible"
        bench.fake.change(7, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: bench.is_parked(7), "it is parked as it stands")
        assert (bench.steps(7), bench.progress(7)["rest"]) == (3, "possible")
    reports = len(bench.fake.reports)
    async with running(state, bench.fake, devices=devices) as agent:
        await agent.until(lambda: len(bench.fake.reports) > reports + 2 and bench.is_parked(7), "the next agent")
        words.write("5\n")
        await agent.until(lambda: bench.progress(7).get("rest") == "asks", "it would step")
        assert bench.is_parked(7)
        assert bench.steps(7) == 4, "it waits at its first boundary"
        bench.fake.change(7, paused=False, to_host=False, at_rest=False)
        await agent.until(lambda: bench.progress(7).get("steps") == 8, "it goes on")
        assert bench.progress(7)["rest"] == "possible"
        bench.fake.end(7)
        await agent.until(lambda: (7, 1) in bench.fake.ends, "the end")
    words.close()


async def test_ranks_that_are_held_as_they_stand_ask_whatever_step_each_is_at(bench: Bench) -> None:
    """Told so while they step: one may wait at its boundary, and the other within its next step, for the first."""
    script = str(Path(__file__).with_name("gang_job.py"))
    bench.jobs.append(8)
    bench.fake.want(8, sys.executable, script, str(bench.folder / "notes-8"), "0.002", env=bench.env)
    async with running(bench.folder / "state", bench.fake, devices="cpu:1:1GB") as agent:
        for _ in range(3):
            goal = bench.steps(8) + 5
            await agent.until(lambda goal=goal: bench.has_gone_on(8, goal), "it steps")  # type: ignore[misc]
            await agent.until(lambda: bench.progress(8).get("rest") == "possible", "it may be parked")
            bench.fake.change(8, paused=True, to_host=True, at_rest=True)
            await agent.until(lambda: bench.progress(8).get("rest") == "asks", "it would step")
            assert bench.is_parked(8)
            bench.fake.change(8, paused=False, to_host=False, at_rest=False)
        goal = bench.steps(8) + 5
        await agent.until(lambda: bench.has_gone_on(8, goal), "it goes on")
        bench.fake.end(8)
        await agent.until(lambda: (8, 1) in bench.fake.ends, "the end")


def kill_in_turn(bench: Bench, state: Path, url: str, rng: random.Random) -> int:
    """Park and bring back one job under an agent, with kills in between; how many there were."""
    job, kills = bench.jobs[-1], 0
    with agent_process(url, state) as agent:
        until(lambda: bench.steps(job) > 3, "it steps")
        bench.fake.pause(job, to_host=True)
        if rng.random() < 0.5:
            until(lambda: bench.is_parked(job), "it is parked")
        agent.kill()
        kills += 1
    was_parked, done = bench.is_parked(job), bench.steps(job)
    reports = len(bench.fake.reports)
    with agent_process(url, state) as agent:
        until(lambda: len(bench.fake.reports) > reports + 1 and bench.is_parked(job), "it is parked by the next agent")
        assert not was_parked or bench.steps(job) == done, "it has stepped on a device that it had given up"
        victim = rng.choice(("agent", "job", "supervisor", "none"))
        pid, claimed_by = bench.pid(job), JobDir(state / "jobs" / f"{job}-1").claimed_by()
        assert claimed_by is not None
        if victim != "none":
            kills += 1
            os.kill({"agent": agent.pid, "job": pid, "supervisor": claimed_by.pid}[victim], signal.SIGKILL)
    bench.fake.pause(job, paused=False)
    with agent_process(url, state):
        goal = bench.steps(job) + 3
        if victim in {"job", "supervisor"}:
            until(lambda: (job, 1) in bench.fake.ends, "its end is told", 2 * DEADLINE_S)
            bench.want(job + 1)
        else:
            until(lambda: bench.has_gone_on(job, goal), "it goes on", 2 * DEADLINE_S)
    return kills + 1


def test_kills_around_parking(bench: Bench) -> None:
    rng, kills, state = random.Random(SEED), 0, bench.folder / "state"
    bench.want(1)
    with served(bench.fake) as url:
        for _ in range(ROUNDS):
            kills += kill_in_turn(bench, state, url, rng)
        with agent_process(url, state):
            bench.fake.end(bench.jobs[-1])
            until(lambda: len(bench.fake.ends) == len(bench.jobs), "all ends are told")
            until(lambda: bench.fake.reports[-1]["jobs"] == [], "nothing is left")
    assert kills >= 2 * ROUNDS
    assert set(bench.fake.ends) == {(job, 1) for job in bench.jobs}
    for (job, _), end in bench.fake.ends.items():
        assert (end["progress"] or {})["steps"] <= bench.steps(job) <= (end["progress"] or {})["steps"] + 1
