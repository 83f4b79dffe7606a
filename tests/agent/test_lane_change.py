"""Jobs that run side by side and are put into one lane take turns from then on, and run freely when they are parted."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = [pytest.mark.live]

JOB = str(Path(__file__).with_name("turn_job.py"))


def steps(path: Path, job: int) -> list[tuple[float, float, int]]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    numbered = [line.split() for line in lines]
    assert [int(number) for number, *_ in numbered] == list(range(1, len(lines) + 1)), "a step is done twice"
    return [(float(began), float(ended), job) for _, began, ended in numbered]


async def test_running_jobs_change_their_lanes(tmp_path: Path, marker: str) -> None:
    name, _, value = marker.partition("=")
    env, fake = {"PATH": os.environ["PATH"], name: value}, FakeScheduler()

    def lane(job: int, number: int) -> None:
        fake.change(job, slots=[{"gpu": 0, "lane": number}])

    def both() -> list[tuple[float, float, int]]:
        return sorted(step for job in (1, 2) for step in steps(tmp_path / str(job), job))

    def turn(job: int) -> str:
        return str(((fake.launched(job) or {}).get("progress") or {}).get("turn") or "")

    for job in (1, 2):
        command = (sys.executable, JOB, str(tmp_path / str(job)), "0.002", "0")
        fake.want(job, *command, env=env, turn={"slots": [{"gpu": 0, "lane": job}]})
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: {job for *_, job in both()} == {1, 2})
        lane(2, 1)
        await agent.until(lambda: turn(1) and turn(2), "turns")
        begun = len(both())
        await agent.until(lambda: len({job for *_, job in both()[begun + 10 :]}) == 2 and len(both()) > begun + 60)
        together = both()[begun + 10 :]
        lane(2, 2)
        await agent.until(lambda: not turn(1) and not turn(2), "no turns")
        goal = len(both()) + 40
        await agent.until(lambda: len(both()) >= goal)
        for job in (1, 2):
            fake.end(job)
        await agent.until(lambda: len(fake.ends) == 2)
    assert not [one for one, other in pairwise(together) if other[0] < one[1]], "two ran at once in one lane"
