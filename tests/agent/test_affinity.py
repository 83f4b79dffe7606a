"""Other cores for running jobs: every thread of every process, those born meanwhile and later too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.measuring import affinity
from colane.agent.measuring.affinity import CoreGrant
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.growing import GROWING_JOB, allowed, are_on, benched
from tests.agent.waiting import until
from tests.needs import two_cores

pytestmark = [pytest.mark.live]

CORES = sorted(os.sched_getaffinity(0))
ONE, OTHER = {CORES[0]}, {CORES[-1]}
OF_DEVICES = set(CORES[: len(CORES) // 2]), set(CORES[len(CORES) // 2 :])
CHANGES = 12


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[int]:
    """The supervisor of a job that makes processes and threads all the time."""
    words = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", sys.executable, GROWING_JOB]
    job = subprocess.Popen([*words, str(tmp_path / "there")])
    until((tmp_path / "there").exists, "the job is there")
    yield job.pid
    processes.kill(reversed(processes.read_tree(job.pid).processes))
    job.wait()


@two_cores
def test_all_threads_change_their_cores(growing: int) -> None:
    for cores in ([ONE, OTHER] * CHANGES)[:CHANGES]:
        assert affinity.give(growing, CoreGrant(frozenset(cores))) == ""
        until(lambda cores=cores: are_on(allowed(growing), cores), f"all are on {cores}")  # type: ignore[misc]


@two_cores
def test_a_process_that_has_left_is_brought_back_and_one_that_keeps_to_a_part_is_left_alone(growing: int) -> None:
    affinity.give(growing, CoreGrant(frozenset(ONE)))
    first, *_, last = processes.read_tree(growing).processes[1:4]
    os.sched_setaffinity(first.pid, {*ONE, *OTHER})
    assert affinity.confine([first, last], CoreGrant(frozenset(ONE))) == ("", 1)
    assert os.sched_getaffinity(first.pid) == ONE
    both = CoreGrant(frozenset(ONE | OTHER))
    assert affinity.confine([first, last], both) == ("", 0)
    assert os.sched_getaffinity(last.pid) == ONE, "a part of its cores, by its own choice"
    affinity.confine([first, last], both, before=CoreGrant(frozenset(ONE)))
    assert os.sched_getaffinity(last.pid) == ONE | OTHER, "born while they changed"


def test_ranks_have_cores_of_their_own() -> None:
    env = {**os.environ, "LOCAL_RANK": "1"}
    rank = subprocess.Popen(["sleep", "1000"], env=env)
    try:
        grant = CoreGrant(frozenset({1, 2, 3}), (frozenset({1}), frozenset({2})))
        until(lambda: grant.of(rank.pid) == {2}, "it runs sleep")
        assert grant._replace(by_rank=()).of(rank.pid) == {1, 2, 3}
        assert grant._replace(by_rank=(frozenset({1}),)).of(rank.pid) == {1, 2, 3}
        assert grant.of(os.getpid()) == {1, 2, 3}
    finally:
        rank.kill()
        rank.wait()


def test_cores_that_are_not_there_are_a_problem_and_a_process_that_is_gone_is_none() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        problem = affinity.give(os.getpid(), CoreGrant(frozenset({1000})))  # below it there may be others', too
        assert re.fullmatch(r"thread \d+ cannot run on 1000: Invalid argument", problem)
    finally:
        child.kill()
        child.wait()
    assert affinity.give(child.pid, CoreGrant(frozenset(ONE))) == ""


@two_cores
async def test_a_running_job_is_given_other_cores(tmp_path: Path, marker: str) -> None:
    fake = FakeScheduler()
    async with benched(tmp_path, marker, fake, CORES[:1]) as bench:
        for cores in [OTHER, ONE, ONE | OTHER] * 3:
            await bench.changes(cores, {"cores": sorted(cores)})
        assert bench.job.facts().cores == tuple(sorted(ONE | OTHER))
        assert fake.reports[-1]["messages"] == []
    fake.change(7, cores=sorted(OTHER))
    async with benched(tmp_path, marker, fake, ()) as bench:
        await bench.agent.until(lambda: bench.are_on(OTHER), "what was asked while no agent was there")
        fake.end(7)
        await bench.agent.until(lambda: (7, 1) in fake.ends, "the end")


@two_cores
async def test_a_job_that_moves_has_the_cores_of_its_device(tmp_path: Path, marker: str) -> None:
    fake = FakeScheduler()
    async with benched(tmp_path, marker, fake, ()) as bench:
        await bench.agent.until(lambda: bench.are_on(OF_DEVICES[0]), "those of device 0")
        await bench.changes(OF_DEVICES[1], {"slots": [{"gpu": 1, "lane": 0}]})
        assert (bench.job.facts().gpus, bench.job.facts().cores) == ((1,), tuple(sorted(OF_DEVICES[1])))
        fake.change(7, slots=[{"gpu": 9, "lane": 0}])
        told = "job 7 is not on its cores: this node has not all of the devices (9,)"
        await bench.agent.until(lambda: fake.is_told(told), told)
        assert bench.are_on(OF_DEVICES[1])
        fake.end(7)
        await bench.agent.until(lambda: (7, 1) in fake.ends, "the end")


RUNAWAY = """
import os, time
while True:
    os.sched_setaffinity(0, range(os.cpu_count()))
    time.sleep(0.002)
"""


@two_cores
async def test_a_job_that_ignores_its_cores_is_put_back_again_and_again_and_that_is_counted(
    tmp_path: Path, marker: str
) -> None:
    name, _, value = marker.partition("=")
    fake, said = FakeScheduler(), re.compile(r"job 7 leaves its cores by itself: put back (.+)")
    fake.want(7, sys.executable, "-c", RUNAWAY, env={"PATH": os.environ["PATH"], name: value}, gpus=(), cores=CORES[:1])

    def counted() -> set[str]:
        lines = [line for report in fake.reports for line in report["messages"]]
        return {found[1] for line in lines if (found := said.fullmatch(line))}

    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: counted() >= {"once or more", "10 times or more"}, "it is counted, and counted on")
        fake.end(7)
        await agent.until(lambda: (7, 1) in fake.ends, "the end")
