"""Agents in processes of their own, killed at bad moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from tests.agent.agents import agent_process, served
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.waiting import DEADLINE_S, read_state, until

pytestmark = [pytest.mark.live, pytest.mark.faults]


def kill(agent: subprocess.Popen[bytes]) -> None:
    agent.send_signal(signal.SIGKILL)
    agent.wait(DEADLINE_S)


def is_stopped(pid: int) -> bool:
    return read_state(pid) == "T"


def test_exit_codes_outlive_an_agent_that_is_killed(tmp_path: Path, mark: dict[str, str]) -> None:
    fake, state = FakeScheduler(), tmp_path / "state"
    fake.want(7, "sh", "-c", "kill -STOP $$; exit 4", env=mark)
    fake.want(8, "sh", "-c", "kill -STOP $$; exit 5", env=mark)
    with served(fake) as url:
        with agent_process(url, state) as agent:
            pids = {}
            for job in (7, 8):
                pids[job] = until(partial(fake.launched, job))["pid"]
                until(partial(is_stopped, pids[job]))
            kill(agent)
        os.kill(pids[7], signal.SIGCONT)
        until(JobDir(state / "jobs" / "7-1").has_ended, "an end without any agent")
        fake.reports.clear()
        with agent_process(url, state):
            assert until(lambda: fake.launched(8))["pid"] == pids[8]
            os.kill(pids[8], signal.SIGCONT)
            until(lambda: len(fake.ends) == 2)
    assert (fake.ends[7, 1]["exit_code"], fake.ends[8, 1]["exit_code"]) == (4, 5)
    assert fake.told == {(7, 1): 1, (8, 1): 1}


def test_sigterm_leaves_jobs_running(tmp_path: Path, mark: dict[str, str]) -> None:
    fake, state = FakeScheduler(), tmp_path / "state"
    fake.want(7, "sleep", "1000", env=mark)
    with served(fake) as url:
        with agent_process(url, state) as agent:
            pid = until(lambda: fake.launched(7))["pid"]
            agent.terminate()
            assert agent.wait(DEADLINE_S) == 0
        assert processes.identify(pid) is not None
        with agent_process(url, state, "stop-jobs") as agent:
            fake.reports.clear()
            until(lambda: fake.launched(7))
            agent.terminate()
            assert agent.wait(DEADLINE_S) == 0
    assert processes.identify(pid) is None
    assert fake.ends[7, 1]["signal"] == signal.SIGTERM


SEED = 20240806
FAULTS = 10
JOBS_EACH_TIME = 2


def test_every_job_ends_once_whenever_agents_are_killed(tmp_path: Path, mark: dict[str, str]) -> None:
    """Each job leaves a line for each time it was run: nothing may run twice, nothing may be forgotten."""
    fake, state, ran = FakeScheduler(), tmp_path / "state", tmp_path / "ran"
    ran.mkdir()
    dice = random.Random(SEED)
    jobs = range(1, FAULTS * JOBS_EACH_TIME + 1)
    with served(fake) as url:
        for fault in range(FAULTS):
            for job in jobs[fault * JOBS_EACH_TIME : (fault + 1) * JOBS_EACH_TIME]:
                fake.want(job, "sh", "-c", f"echo $$ >>{ran}/{job}; exit {job}", env=mark)
            # Between one and twelve words after its start: in the midst of launching and telling.
            last_word = fake.calls + dice.randint(1, 12)
            with agent_process(url, state) as agent:
                until(partial(has_heard, fake, last_word))
                kill(agent)
        with agent_process(url, state):
            until(lambda: len(fake.ends) == len(jobs), "all ends")
    assert {end["id"]: end["exit_code"] for end in fake.ends.values()} == {job: job for job in jobs}
    assert [len((ran / str(job)).read_text().splitlines()) for job in jobs] == [1] * len(jobs)


def has_heard(fake: FakeScheduler, calls: int) -> bool:
    return fake.calls >= calls
