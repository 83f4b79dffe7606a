"""Servers that have nothing to answer hold no turn, however they serve, whenever another job comes to their lane."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.agents import Running, running
from tests.agent.lane import QUIET, STEP_S, Lane, overlaps

pytestmark = [pytest.mark.live]

SERVER = str(Path(__file__).with_name("serving_job.py"))
HEARD = ("request", "threads", "step", "model")
WAYS = (*HEARD, "unheard")
NEVER_S = 3600.0
"""A job that is asked for its turn in vain is given up on after so long: not within a test."""
FIRST = 10
"""The number of the first job that trains; its server has 10 less."""


class Servers:
    """One of each way in a lane of its own."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.jobs = dict(enumerate(WAYS, start=1))
        self._pipes: dict[int, int] = {}

    async def start(self, agent: Running) -> None:
        for job, how in self.jobs.items():
            pipe = self.lane.folder / f"pipe-{job}"
            os.mkfifo(pipe)
            self._pipes[job] = os.open(pipe, os.O_RDWR)
            command = (sys.executable, SERVER, str(self.lane.notes(job)), str(pipe), str(STEP_S), how)
            turn = {"slots": [{"gpu": 0, "lane": job}], "kind": "inference"}
            self.lane.fake.want(job, *command, env=QUIET | self.lane.env, turn=turn)
        ready = [Path(f"{self.lane.notes(job)}.ready") for job in self.jobs]
        await agent.until(lambda: all(path.exists() for path in ready), "all serve", 120.0)

    async def answer(self, agent: Running, requests: int, jobs: Sequence[int]) -> None:
        goal = {job: self.lane.count(job) + requests for job in jobs}
        for job in jobs:
            os.write(self._pipes[job], b"please\n" * requests)
        await agent.until(lambda: all(self.lane.count(job) >= goal[job] for job in jobs), "all answer")

    def close(self) -> None:
        for pipe in self._pipes.values():
            os.close(pipe)


@pytest.mark.parametrize("answered", [0, 2])
async def test_a_newcomer_steps_at_once_beside_a_server_that_is_asked_for_nothing(
    lane: Lane, tmp_path: Path, answered: int
) -> None:
    """The turn is never given up on here, so a server that kept it would keep the newcomer for good."""
    servers = Servers(lane)
    heard = [job for job, how in servers.jobs.items() if how in HEARD]
    async with running(tmp_path / "state", lane.fake, yield_bound_s=NEVER_S) as agent:
        await servers.start(agent)
        if answered:
            await servers.answer(agent, answered, list(servers.jobs))
        newcomers = {job: job + FIRST for job in servers.jobs}
        for job, newcomer in newcomers.items():
            lane.want(newcomer, slots=[{"gpu": 0, "lane": job}])
        await lane.goes_on(agent, list(newcomers.values()), 20)
        began_s = {job: lane.steps(newcomer)[-1][1] for job, newcomer in newcomers.items()}
        await servers.answer(agent, 8, list(servers.jobs))
        await lane.goes_on(agent, list(newcomers.values()), 20)
        await lane.says(agent, "answers without saying when a request comes")
        assert [lane.progress(job).get("turn") for job in heard].count("ungated") == 0
        await lane.end(agent, [*servers.jobs, *newcomers.values()])
    servers.close()
    for job in heard:
        if servers.jobs[job] != "threads":
            assert overlaps(lane, (job, newcomers[job]), began_s[job]) == [], servers.jobs[job]
