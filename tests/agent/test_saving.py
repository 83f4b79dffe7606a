"""Jobs that are asked to save their state: who gets the signal, how often, and what is told of a disk that is full."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.agent import processes
from colane.agent.files.jobdir import JobDir, LaunchFacts, asked, write_json
from colane.agent.measuring.telemetry import AttemptMeter
from colane.agent.reconcile import DesiredJob, Key, SaveRequest
from colane.agent.running.answers import SaveAnswers
from colane.agent.running.saving import DEAF, Saver
from colane.agent.supervisor import programs
from colane.agent.supervisor.shim_files import ASKED
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.shims import Supervised, program, run
from tests.agent.waiting import until

KEY = Key(1, 1)

TRAINER = """
import os, signal, sys, time
def save(number, frame):
    with open(f"got-{sys.argv[1]}", "a") as file:
        file.write(".")
    if len(open(f"got-{sys.argv[1]}").read()) == 2:
        os._exit(75)
signal.signal(getattr(signal, sys.argv[2]), save)
if len(sys.argv) > 3 and os.fork() == 0:
    sys.argv[1] = "loader"
open(f"ready-{sys.argv[1]}", "w").close()
while True:
    time.sleep(1000)
"""


def wanted(number: int, signal: str = "SIGUSR1") -> list[DesiredJob]:
    return [DesiredJob(KEY, run=True, save=SaveRequest(signal, number))]


def saver_of(job: JobDir) -> Saver:
    return Saver(lambda _: job, programs.folder(job.path.parent))


def signals(root: Path, who: str) -> int:
    path = root / f"got-{who}"
    return len(path.read_text()) if path.exists() else 0


def ready(root: Path, *names: str) -> None:
    for name in names:
        until((root / f"ready-{name}").exists, f"{name} waits")


@pytest.mark.live
def test_the_first_that_catches_it_gets_the_signal_once_for_each_asking(tmp_path: Path, marker: str) -> None:
    script = f'{sys.executable} -c "$0" trainer SIGUSR1 forks & wait'
    supervised = run(tmp_path, "sh", "-c", script, TRAINER, marker=marker)
    ready(tmp_path, "trainer", "loader")
    saver = saver_of(supervised.job)
    saver.follow(wanted(1))
    until(lambda: signals(tmp_path, "trainer"), "the trainer is told")
    saver.follow(wanted(1))
    saver_of(supervised.job).follow(wanted(1))
    assert asked(supervised.job.path)[0] == 1
    saver.follow(wanted(2))
    until(lambda: signals(tmp_path, "trainer") == 2, "it is told again, and leaves")
    assert supervised.end()["exit_code"] == 0, "the shell, which would die of the signal, lives on"
    assert signals(tmp_path, "loader") == 0
    assert saver.messages() == ()


@pytest.mark.live
def test_each_rank_of_ours_is_told_and_none_ends_the_others_by_having_saved(tmp_path: Path, marker: str) -> None:
    script = f'exec {sys.executable} -c "$0" $RANK SIGTERM'
    words = (*program(tmp_path, programs.RANKS), "0.3", "0", "", "::", "::", "--", "sh", "-c", script, TRAINER)
    supervised = run(tmp_path, *words, marker=marker)
    ready(tmp_path, "0", "1")
    saver = saver_of(supervised.job)
    saver.follow(wanted(1, "SIGTERM"))
    until(lambda: signals(tmp_path, "0") and signals(tmp_path, "1"), "both are told")
    saver.follow(wanted(2, "SIGTERM"))
    assert supervised.end()["exit_code"] == 75
    assert (signals(tmp_path, "0"), signals(tmp_path, "1")) == (2, 2)


@pytest.mark.live
def test_a_job_that_catches_nothing_lives_on_and_is_named(tmp_path: Path, marker: str) -> None:
    supervised = run(tmp_path, "sleep", "1000", marker=marker)
    main = supervised.main
    saver = saver_of(supervised.job)
    saver.follow(wanted(1))
    assert saver.messages() == (DEAF.format(key="1-1", signal="SIGUSR1"),)
    assert asked(supervised.job.path) == (0, 0.0)
    assert processes.identify(main.pid) == main
    saver.follow([DesiredJob(KEY, run=True)])
    assert saver.messages() == ()
    _end(supervised)


def _end(supervised: Supervised) -> None:
    supervised.stop()
    supervised.end()


@pytest.mark.parametrize(
    ("asked_s", "failed_s", "saved_s", "problem"),
    [
        (None, 50.0, None, ""),
        (60.0, 50.0, None, ""),
        (40.0, 50.0, None, "No space left on device"),
        (40.0, 50.0, 55.0, ""),
    ],
)
def test_a_failure_to_save_is_told_of_the_present_asking_alone(
    tmp_path: Path, asked_s: float | None, failed_s: float, saved_s: float | None, problem: str
) -> None:
    directory = tmp_path / "1-1"
    steps_path = JobDir(directory).steps_path
    steps_path.parent.mkdir(parents=True)
    wire.create(steps_path)
    writer = wire.Writer(str(steps_path))
    writer.set_restored(100)
    writer.step(45.0, 1.0)
    writer.set_save_failed(failed_s, errno.ENOSPC)
    writer.set_noise_scale(321.5)
    if saved_s is not None:
        writer.set_saved(saved_s, 101)
    writer.close()
    if asked_s is not None:
        write_json(directory / ASKED, {"number": 1, "at_s": asked_s})
    told = AttemptMeter(steps_path, LaunchFacts("boot", 0.0)).last(time.time(), 0.0, 1.0)
    assert (told.save_problem, told.saves, told.steps) == (problem, True, 101)
    assert told.saves_asked == (1 if problem else 0)
    assert told.noise_scale == 321.5
    assert (told.saved_s, told.steps_saved) == (saved_s, None if saved_s is None else 101)


def test_an_answer_is_heard_once_for_each_asking(tmp_path: Path) -> None:
    job = JobDir(tmp_path / "1-1")
    job.steps_path.parent.mkdir(parents=True)
    wire.create(job.steps_path)
    answers = SaveAnswers(lambda _: job.steps_path)
    assert not answers.are_due
    write_json(job.path / ASKED, {"number": 1, "at_s": 40.0})
    answers.follow(wanted(1))
    assert answers.are_due
    assert not answers.look()
    writer = wire.Writer(str(job.steps_path))
    writer.step(45.0, 1.0)
    writer.set_save_failed(50.0, errno.ENOSPC)
    writer.close()
    assert answers.look()
    assert not answers.look()
    assert not answers.are_due
    write_json(job.path / ASKED, {"number": 2, "at_s": 60.0})
    answers.follow(wanted(2))
    assert answers.are_due
    assert not answers.look(), "what it said was of the asking before"


def test_ranks_that_go_on_as_fewer_are_told_of_once_the_others_are_gone(tmp_path: Path) -> None:
    job = JobDir(tmp_path / "1-1")
    job.steps_path.parent.mkdir(parents=True)
    pages = [wire.rank_path(job.steps_path, rank) for rank in range(2)]
    other = subprocess.Popen([sys.executable, "-c", ONE_OF_TWO, str(pages[1])], env={**os.environ, "LOCAL_RANK": "1"})
    for page in pages[:1]:
        wire.create(page)
    writer, answers = wire.Writer(str(pages[0])), SaveAnswers(lambda _: job.steps_path)
    until(pages[1].exists, "the other rank writes its page")
    until(lambda: wire.read(pages[1]) is not None, "it has claimed it")
    answers.follow([DesiredJob(KEY, run=True, save=SaveRequest("SIGUSR1", 1, ranks=1))])
    meter = AttemptMeter(job.steps_path, LaunchFacts("boot", 0.0, gpus=(0, 1), cpu_devices=True))
    writer.set_reforms()
    writer.step(45.0, 1.0)
    assert not answers.look()
    writer.set_ranks(1)
    writer.step(50.0, 7.0)
    assert not answers.look(), "the other one is still there"
    seen = meter.sample(60.0, os.getpid(), {})
    assert (seen.reforms, seen.ranks) == (True, 0)
    other.kill()
    other.wait()
    assert answers.look()
    seen = meter.sample(61.0, os.getpid(), {})
    assert (seen.ranks, seen.steps, seen.step_mean_s) == (1, 2, 7.0)
    writer.close()


ONE_OF_TWO = """
import sys, time
from colane.adaptor import wire
wire.create(sys.argv[1])
writer = wire.Writer(sys.argv[1])
time.sleep(1000)
"""


CANNOT_SAVE = """
import sys, time
import colane.adaptor as colane

def write(steps):
    raise OSError(28, "full")

steps = colane.attach()
steps.restore(lambda: None)
open(sys.argv[1], "w").close()
while True:
    time.sleep(0.01)
    steps.step()
    steps.save(write)
"""


@pytest.mark.live
async def test_an_agent_tells_at_once_that_a_job_cannot_save(tmp_path: Path, marker: str) -> None:
    fake, ready = FakeScheduler(), tmp_path / "ready"
    name, _, value = marker.partition("=")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), name: value}
    fake.want(7, sys.executable, "-c", CANNOT_SAVE, str(ready), env=env)
    async with running(tmp_path / "state", fake, heartbeat_s=3600.0) as agent:
        await agent.until(ready.exists, "it trains")
        fake.change(7, save={"signal": "SIGUSR1", "number": 1})
        await agent.get("/run")

        def problem() -> str:
            return str(((fake.seen(7) or {}).get("progress") or {}).get("save_problem") or "")

        await agent.until(lambda: "No space left" in problem(), "its agent, which reports once an hour, says so")
        fake.end(7)
        await agent.get("/run")
        await agent.until(lambda: fake.ends, "it is gone")
