"""A running job parked for a more urgent one: the real scheduler, the real agent, real processes on a cpu device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from colane.model.choices import IdleRule
from tests.agent.agents import running
from tests.agent.test_host_memory_whole import Link, until
from tests.server.harness import world

pytestmark = [pytest.mark.live]

STEPS = 400
POLICY = f"{Path(__file__).with_name('urgent_policy.py')}:Urgent"
JOB = """
import os, random, sys, time
import colane.adaptor as colane
steps, draw, total = colane.attach(total_steps=int(sys.argv[2])), random.Random(7), 0.0
with open(sys.argv[1], "a", buffering=1) as notes:
    for number in range(1, int(sys.argv[2]) + 1):
        time.sleep(0.002 if os.path.exists(sys.argv[3]) else 0.05)
        total = total * 0.999 + draw.gauss(0, 1)
        notes.write(f"{number} {total.hex()}\\n")
        steps.step()
"""


async def test_it_continues_with_every_step_and_every_bit(tmp_path: Path, marker: str) -> None:
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}

    def notes(job: int) -> list[str]:
        path = tmp_path / f"notes-{job}"
        return path.read_text().splitlines() if path.exists() else []

    async with world(policy=POLICY) as w, running(tmp_path / "state", Link(w)) as agent:  # type: ignore[arg-type]

        async def submit(number: int, priority: int) -> None:
            until_then_slow = str(tmp_path / "notes-2")
            command = [sys.executable, "-c", JOB, str(tmp_path / f"notes-{number}"), str(STEPS), until_then_slow]
            assert await w.submit(command=command, env=env, workdir="/", priority=priority) == number

        async def is_seen(job: int, state: str) -> bool:
            return bool((await w.good("GET", f"/job/{job}"))["state"] == state)

        await submit(1, 0)
        await until(agent, lambda: is_seen(1, "running"), "job 1 runs unprotected")
        await submit(2, 5)
        await agent.until(lambda: len(notes(2)) > 5, "job 2 has the device")
        parked = len(notes(1))
        assert 0 < parked < STEPS
        assert (await w.good("GET", "/job/1"))["on_host_bytes"] == 0
        await until(agent, lambda: is_seen(2, "succeeded"), "job 2 ends")
        await until(agent, lambda: is_seen(1, "succeeded"), "job 1 ends")
        ended = await w.good("GET", "/job/1")
    assert notes(1) == notes(2), "as one that was not interrupted"
    assert [int(line.split()[0]) for line in notes(1)] == list(range(1, STEPS + 1))
    assert ended["attempt"] == 1


async def test_an_idle_job_gives_its_device_up_and_comes_back_for_its_next_step(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colane.server.tending.idle_jobs.IDLE_PERIOD_S", 0.05)
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], name: value}
    pipe, script = tmp_path / "pipe", str(Path(__file__).with_name("waiting_job.py"))
    os.mkfifo(pipe)
    words = os.fdopen(os.open(pipe, os.O_RDWR), "w", buffering=1)

    async with (
        world(policy="colane", idle_after_s=0.0, idle_rule=IdleRule.PARK) as w,
        running(tmp_path / "state", Link(w)) as agent,  # type: ignore[arg-type]
    ):

        async def is_seen(job: int, state: str) -> bool:
            return bool((await w.good("GET", f"/job/{job}"))["state"] == state)

        async def is_off() -> bool:
            return (await w.good("GET", "/job/1"))["on_host_bytes"] is not None

        command = [sys.executable, script, str(tmp_path / "notes-1"), str(pipe)]
        await w.submit(command=command, env=env, workdir="/")
        words.write("3\n")
        await until(agent, is_off, "it is off its device")
        await w.submit(command=["true"], env=env, workdir="/", share=False)
        await until(agent, lambda: is_seen(2, "succeeded"), "another has had it")
        assert await is_off()
        words.write("4\n")
        await agent.until(lambda: (tmp_path / "notes-1").read_text().split()[-1] == "7", "it has made its steps")
        words.close()
        await until(agent, lambda: is_seen(1, "succeeded"), "it ends")
        ended = await w.good("GET", "/job/1")
    assert ended["attempt"] == 1
    assert {"idle-parked", "idle-off-gpu", "steps-again"} <= {line["why"] for line in ended["story"]}
