"""Two hundred kills while jobs share lanes: of whoever holds a turn, of whoever waits, of the agent.

A device has four lanes of three jobs each, so that a round kills in every lane at once. After each round every lane
goes on, and who was killed is replaced.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from colane.adaptor import turns
from colane.agent import processes
from tests.agent.agents import served
from tests.agent.fake_scheduler import FakeScheduler, Object
from tests.agent.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.live, pytest.mark.faults]

SEED = 20261121
LANES, JOBS = 4, 3
ROUNDS = (10, 10, 10, 10, 9)
"""Rounds under each agent; all but the last agent are killed: 49 x 4 jobs and 4 agents."""

JOB = str(Path(__file__).with_name("turn_job.py"))
STEP_S = "0.002"
WAIT_S = 3 * DEADLINE_S

AGENT = """
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name="node-1", scheduler_url=sys.argv[1], state_dir=Path(sys.argv[2]), devices="cpu:1:1GB",
                      heartbeat_s=0.1, grace_s=30.0))
"""


@contextmanager
def agent_of(url: str, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    agent = subprocess.Popen([sys.executable, "-c", AGENT, url, str(state)])
    try:
        yield agent
    finally:
        agent.kill()
        agent.wait()


class Node:
    """What runs in each lane, and what was killed."""

    def __init__(self, fake: FakeScheduler, folder: Path, env: dict[str, str]) -> None:
        self.fake, self.folder, self.env = fake, folder, env
        self.lanes: dict[int, list[int]] = {lane: [] for lane in range(LANES)}
        self.killed: set[int] = set()
        self.kills = 0

    def fill(self) -> None:
        for lane, jobs in self.lanes.items():
            while len(jobs) < JOBS:
                job = 1 + sum(map(len, self.lanes.values())) + len(self.killed)
                jobs.append(job)
                command = (sys.executable, JOB, str(self.folder / f"{job}"), STEP_S, "0")
                self.fake.want(job, *command, env=self.env, turn={"slots": [{"gpu": 0, "lane": lane}]})

    @property
    def jobs(self) -> list[int]:
        return [job for jobs in self.lanes.values() for job in jobs]

    def steps(self, job: int) -> int:
        path = self.folder / f"{job}"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def go_on(self, steps: int = 3) -> None:
        """Wait until every job has done some more steps: no deadlock, no lost turn."""
        goal = {job: self.steps(job) + steps for job in self.jobs}
        until(lambda: all(self.steps(job) >= goal[job] for job in goal), "every job goes on", WAIT_S)

    def kill_one_in_each(self, rng: random.Random) -> None:
        for jobs in self.lanes.values():
            job = self.holder(jobs) if rng.random() < 0.5 else rng.choice(jobs)
            seen = until(lambda job=job: self.fake.launched(job), "a pid", WAIT_S)  # type: ignore[misc]
            os.kill(seen["pid"], signal.SIGKILL)
            jobs.remove(job)
            self.killed.add(job)
            self.kills += 1

    def holder(self, jobs: list[int]) -> int:
        """Who held the lane when it was last reported."""
        turn = {job: self.progress(job).get("turn") for job in jobs}
        return next((job for job in jobs if turn[job] == "running"), jobs[0])

    def progress(self, job: int) -> Object:
        return dict((self.fake.launched(job) or {}).get("progress") or {})


def test_two_hundred_kills(tmp_path: Path, marker: str) -> None:
    rng, fake = random.Random(SEED), FakeScheduler()
    name, _, value = marker.partition("=")
    node = Node(fake, tmp_path, {"PATH": os.environ["PATH"], name: value})
    state = tmp_path / "state"
    with served(fake) as url:
        for number, rounds in enumerate(ROUNDS, start=1):
            with agent_of(url, state) as agent:
                for _ in range(rounds):
                    node.fill()
                    node.go_on()
                    node.kill_one_in_each(rng)
                if number == len(ROUNDS):
                    finish(node)
                    break
                agent.kill()
                node.kills += 1
                node.go_on()
    assert node.kills == 200
    judge(node)


def judge_tellings(fake: FakeScheduler) -> None:
    """An end is told once, and again only by the next agent, where the last word of the one before it was that end.

    An agent tells the ends of a round together, one round after another, and notes the answers: it may be killed
    between an answer and its notes.
    """
    by_agent = [[key for number, key in fake.tellings if number == agent] for agent in range(1, len(ROUNDS) + 1)]
    assert fake.registrations == len(by_agent)
    assert sum(map(len, by_agent)) == len(fake.tellings)
    last: set[tuple[int, int]] = set()
    heard: set[tuple[int, int]] = set()
    for keys in by_agent:
        assert len(keys) == len(set(keys)), "told twice by one agent"
        assert heard & set(keys) <= last, "told again, though the answer was noted"
        heard.update(keys)
        together = [set(told) for told in fake.told_together if set(keys[-1:]) & set(told) and set(told) <= set(keys)]
        last = set(keys[-1:]).union(*together)


def finish(node: Node) -> None:
    node.go_on()
    until(lambda: node.killed <= {job for job, _ in node.fake.ends}, "the killed are told of", WAIT_S)
    for job in node.jobs:
        node.fake.end(job)
    until(lambda: len(node.fake.ends) == len(node.killed) + len(node.jobs), "all ends", WAIT_S)
    until(lambda: node.fake.reports[-1]["jobs"] == [], "nothing is left", WAIT_S)
    assert node.fake.reports[-1]["messages"] == []


def judge(node: Node) -> None:
    """Each step was counted once; nothing is left of anybody."""
    for (job, _), end in node.fake.ends.items():
        counted = (end["progress"] or {})["steps"]
        assert counted <= node.steps(job) <= counted + 1, "a kill may fall between a step and its count"
        numbers = [int(line.split()[0]) for line in (node.folder / f"{job}").read_bytes().splitlines()]
        assert numbers == list(range(1, len(numbers) + 1))
    judge_tellings(node.fake)
    mark = f"{turns.GATE_ENV}={node.folder / 'state' / 'gate'}".encode()
    until(lambda: not processes.marked(mark), "no process is left")
