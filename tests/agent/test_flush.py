"""Jobs of a lane are told on their page to give cached memory back, when the lane needs it and only then."""

from __future__ import annotations

import os
import struct
import sys
from functools import partial
from pathlib import Path

import pytest

from colane.adaptor import turns
from colane.adaptor.writer import CONTROL_OFFSET
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = [pytest.mark.live]

JOB = str(Path(__file__).with_name("turn_job.py"))


async def test_a_job_that_shares_a_lane_gives_caches_back_while_that_is_asked_for(tmp_path: Path, marker: str) -> None:
    name, _, value = marker.partition("=")
    env, fake = {"PATH": os.environ["PATH"], name: value}, FakeScheduler()

    def flushes(job: int) -> bool:
        with (tmp_path / "state" / "jobs" / f"{job}-1" / "own" / "steps").open("rb") as steps:
            steps.seek(CONTROL_OFFSET + turns.FLUSH * 8)
            return struct.unpack("=Q", steps.read(8)) != (0,)

    def are(wanted: bool) -> bool:
        return {flushes(job) for job in (1, 2)} == {wanted}

    for job in (1, 2):
        command = (sys.executable, JOB, str(tmp_path / f"notes-{job}"), "0.002", "0")
        fake.want(job, *command, env=env, turn={"flush": False})
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: all(_turn(fake, job) in {"running", "waiting"} for job in (1, 2)), "turns")
        assert not any(map(flushes, (1, 2)))
        for wanted in (True, False):
            for job in (1, 2):
                fake.change(job, flush=wanted)
            await agent.until(partial(are, wanted), f"flush {wanted}")
        for job in (1, 2):
            fake.end(job)
        await agent.until(lambda: len(fake.ends) == 2)


def _turn(fake: FakeScheduler, job: int) -> str:
    seen = fake.launched(job) or {}
    return str((seen.get("progress") or {}).get("turn"))
