"""kill -9 of scheduler, two agents, supervisors and jobs under policies of every sort, with gangs and stepping jobs.

Every job ends once, none is lost, no rank of one runs twice at once, no step of an attempt is made twice, jobs that
were not killed make all their steps, and devices are free at the end. Policies are drawn in turn from all that are
registered: `COLANE_KILLS=500 pytest tests/faults/test_kill_policies.py` comes to each three times.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from colane.scheduling.registry import NAMES

from .bench import FaultBench, benched, kill
from .cluster import Cluster

KILLS = int(os.environ.get("COLANE_KILLS", "14"))
KILLS_EACH = 7
AGENTS = {"agent": "node-1", "agent-2": "node-2"}
SERVICES = ("server", *AGENTS)
STEP_S, STEPS, GANG_STEPS = 0.01, (5, 80), 60
SMALL, GANGS = 6, 2
"""Jobs that are kept in the queue of each round."""
STEPPER = str(Path(__file__).parents[1] / "agent" / "turn_job.py")
SCRIPT = """
rank=${NODE_RANK:-0}
exec 9>>"$3/lock-$COLANE_JOB_ID-$rank"
flock -n 9 || { echo "$COLANE_JOB_ID" >>"$3/twice"; exit 1; }
exec "$1" "$2" "$3/steps-$COLANE_JOB_ID-$COLANE_ATTEMPT-$rank" "$4" "$5"
"""
NEVER_STOP = frozenset({"fifo", "fifo-skip", "best-fit", "easy-backfill", "slurm-fifo", "sjf", "fcfs"})
"""Policies that stop no job: one that was not killed has one attempt."""


def drawn() -> list[str]:
    """Policies, as many as kills need, in an order that comes to all before it comes to one again."""
    rest = max(1, -(-KILLS // KILLS_EACH))
    order: list[str] = []
    for turn in range(-(-rest // len(NAMES))):
        order += Random(turn).sample(sorted(NAMES), len(NAMES))
    return list(islice(order, rest))


class PolicyBench(FaultBench):
    """Two nodes of one device, small jobs and gangs over both."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        cluster.start("agent-2")
        self.until(lambda: len(self.cluster.client().nodes()) == len(AGENTS), "both agents")
        self.totals: dict[int, int] = {}
        self.struck: Counter[int] = Counter()

    def bring(self, count: int, total: int, **fields: Any) -> None:
        words = ("sh", sys.executable, STEPPER, self.notes, STEP_S, total)
        env = {"PATH": os.environ["PATH"]}
        self.totals |= dict.fromkeys(self.submit(count, "-c", SCRIPT, *words, env=env, **fields), total)

    def submit(self, count: int, *words: object, **fields: Any) -> list[int]:
        job = {"command": ["sh", *map(str, words)], "workdir": "/", **fields}
        return [int(each) for each in self.cluster.client().submit_batch([job] * count)]

    def fill(self) -> None:
        """Keep the queue as long as it was."""
        gangs = sum(job["needs"]["multi_node"] for job in self.live().values())
        small = len(self.live()) - gangs
        for _ in range(small, SMALL):
            total, draw = self.random.randint(*STEPS), self.random.random()
            self.bring(1, total, priority=5 * (draw < 0.2), preemptible=draw < 0.6, family=f"steps {total % 3}")
        self.bring(max(0, GANGS - gangs), GANG_STEPS, gpus=2, multi_node=True, family="gang")

    def alive(self) -> list[tuple[int, JobDir]]:
        """Attempts that run now, wherever."""
        places = [self.cluster.folder / name / "jobs" for name in AGENTS]
        found = (JobDir(path) for place in places if place.exists() for path in sorted(place.glob("[0-9]*")))
        return [(one.key.job, one) for one in found if one.started() is not None and not one.has_ended()]

    def kill_round(self) -> int:
        """Kill some of all that lives, then start again what serves; how many were killed."""
        self.fill()
        self.until(lambda: self.alive() or not self.live(), "a job runs")
        services = [name for name in SERVICES if self.random.random() < 0.3]
        jobs = [one for one in self.alive() if self.random.random() < 0.4]
        for name in services:
            self.cluster.kill(name)
        killed = sum([self.strike(job, place) for job, place in jobs])
        self.restart(self.random.sample(services, len(services)))
        return killed + len(services)

    def strike(self, job: int, place: JobDir) -> bool:
        """Kill a job's process or its supervisor; false where there is none any more."""
        started, claimed_by = place.started(), place.claimed_by()
        who = processes.identify(int(started["pid"])) if started and self.random.random() < 0.5 else claimed_by
        has_died = who is not None and kill(who)
        self.struck[job] += has_died
        return has_died

    def steps(self, job: int, attempt: int) -> list[int]:
        """How many steps each rank of an attempt made, after a look that it made them in order, each once."""
        made = []
        for path in sorted(self.notes.glob(f"steps-{job}-{attempt}-*")):
            numbers = [int(line.split()[0]) for line in path.read_text().split("\n")[:-1]]
            assert numbers == list(range(1, len(numbers) + 1)), f"{path.name} made a step twice"
            made.append(len(numbers))
        return made


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PolicyBench]:
    cluster = Cluster(tmp_path, policy=request.param, devices="cpu:1:1GB", protection_factor=0.0)
    with benched(PolicyBench, cluster) as bench:
        yield bench


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bench", drawn(), indirect=True)
def test_every_job_ends_once_under_every_policy(bench: PolicyBench) -> None:
    policy = bench.cluster.policy
    kills = 0
    while kills < KILLS_EACH:
        kills += bench.kill_round()
    bench.until(lambda: not bench.live(), "all end")
    records = bench.records()
    assert sorted(records) == sorted(bench.totals), bench.cluster.logs()
    assert not (bench.notes / "twice").exists(), bench.cluster.logs()
    for job, total in bench.totals.items():
        record = records[job]
        made = [bench.steps(job, attempt) for attempt in range(1, record["attempt"] + 1)]
        assert all(each <= total for ranks in made for each in ranks), (job, made)
        if not bench.struck[job]:
            ranks = 2 if record["needs"]["multi_node"] else 1
            assert (record["state"], made[-1]) == ("succeeded", [total] * ranks), (record["story"], made)
            assert record["attempt"] == 1 or policy not in NEVER_STOP, (record["story"], bench.cluster.logs())
    assert [node["jobs"] for node in bench.cluster.client().nodes()] == [[], []]
