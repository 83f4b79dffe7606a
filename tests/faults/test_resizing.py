"""Jobs are resized and stopped without end while they, their supervisors, agent and scheduler are killed meanwhile.

No step is lost beyond the last state that was saved, none that was saved is made again, no job runs twice at once, and
all devices are free at the end. `COLANE_KILLS=500 pytest tests/faults/test_resizing.py` kills more often than the tests
of every day.
"""

from __future__ import annotations

import os
import select
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from colane.api.jobs import JobObject
from tests.needs import two_cores

from .bench import FaultBench, benched, kill
from .cluster import Cluster

HERE = Path(__file__).parent
JOB, POLICY = str(HERE / "saving_job.py"), f"{HERE / 'restless_policy.py'}:Restless"
DEVICES = 2
KILLS = int(os.environ.get("COLANE_KILLS", "8"))
BOTH_WAYS = {"grown", "shrunk"}
"""Kills go on until jobs were resized in both ways."""
STEPS, STEP_S = 150, 0.01
MOMENT_MAX_S = 0.15
"""A kill comes so long after a job was seen to be resized, at most: some launch, some step by then."""
STRIKES_MAX = 2
"""Of one resize; then it is let be."""
PASSING = frozenset({"checkpointing", "stopping", "assigned", "launching"})
VICTIMS = ("job", "job", "job", "supervisor", "agent", "server", "agent and server")


class ResizingBench(FaultBench):
    """Jobs that are resized without end, and who was killed meanwhile."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.jobs: list[int] = []
        self.killed: Counter[str] = Counter()
        self.ways = set[str]()
        self.moments: Counter[str] = Counter()
        self.struck: Counter[float] = Counter()
        """By when the resize was decided."""
        self.wanted = 1

    def fill(self, live: int) -> None:
        """So many jobs as are wanted now: one that grows and shrinks, two that stop each other, or one more."""
        script = 'exec "$0" "$1" "$2" "$COLANE_JOB_ID" "$COLANE_ATTEMPT" "$3" "$4"'
        words = [script, sys.executable, JOB, self.notes, STEPS, STEP_S]
        elastic = {"gpus": "1..2", "checkpoint": "plain", "retries": 1000}
        self.jobs += self.submit(max(0, self.wanted - live), *words, env=dict(os.environ), **elastic)

    def strike(self) -> None:
        """Wait until a job is on its way to another size, and a moment of chance; then kill a process."""
        self.wanted = self.random.choice((1, 1, 1, 2, 3))
        resized = lambda: [job for job in self.look() if self.is_resized(job)]  # noqa: E731
        passing = self.until(resized, "a job is resized", every_s=0.005)
        select.select([], [], [], self.random.choice((0.0, self.random.uniform(0.0, MOMENT_MAX_S))))
        victim, job = self.random.choice(VICTIMS), self.random.choice(passing)
        self.moments[job["state"]] += 1
        self.struck[max(float(line["at_s"]) for line in job["story"] if line["state"] == "checkpointing")] += 1
        if victim in {"job", "supervisor"}:
            self.killed[victim] += self._kill(job["id"], victim == "supervisor")
            return
        for name in victim.split(" and "):
            self.cluster.kill(name)
        self.restart(victim.split(" and "))
        self.killed[victim] += 1

    def is_resized(self, job: JobObject) -> bool:
        """Whether a job is on its way to another size or to the queue, and this has hardly been disturbed yet."""
        began_s = 0.0
        for line in job["story"]:
            if line["state"] == "running":
                began_s = 0.0
            elif line["state"] == "checkpointing":
                began_s = float(line["at_s"])
        return began_s > 0.0 and job["state"] in PASSING and self.struck[began_s] < STRIKES_MAX

    def look(self) -> list[JobObject]:
        live = self.live()
        self.fill(len(live))
        self.ways.update(line["why"] or "" for job in live.values() for line in job["story"])
        return list(live.values())

    def _kill(self, job: int, is_supervisor: bool) -> bool:
        """Kill the processes of a job that it has now, or the supervisor above them; false where there is none."""
        directories = (self.cluster.folder / "agent" / "jobs").glob(f"{job}-*")
        latest = max(directories, key=lambda path: path.stat().st_mtime, default=None)
        claimed_by = JobDir(latest).claimed_by() if latest else None
        if claimed_by is None:
            return False
        killed = [claimed_by] if is_supervisor else processes.read_tree(claimed_by.pid).processes[1:]
        return sum(kill(one) for one in killed) > 0


def check(attempts: list[list[list[str]]]) -> None:
    """Each attempt goes on from a state at least as new as the newest that was noted, and makes step after step."""
    saved = made = 0
    for lines in attempts:
        assert ["twice"] not in lines
        if not lines:
            continue  # killed before it began
        assert lines[0][0] == "began", lines
        restored = int(lines[0][2])
        assert saved <= restored <= made, (saved, restored, made)
        steps = [int(words[1]) for words in lines[1:] if words[0] == "step"]
        assert steps == list(range(restored + 1, restored + 1 + len(steps))), (restored, steps)
        made = max(made, restored + len(steps))
        saved = max([restored, *[int(words[1]) for words in lines[1:] if words[0] == "saved"]])
    assert made == STEPS


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ResizingBench]:
    cluster = Cluster(
        tmp_path, POLICY, devices=f"cpu:{DEVICES}:1GB",
        protection_factor=0.0, core={"node_losses_max": 10**6, "saves_failed_max": 10**6},
    )  # fmt: skip
    with benched(ResizingBench, cluster) as bench:
        yield bench


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.timeout(300 + 10 * KILLS)
@two_cores
def test_kills_during_resizes(bench: ResizingBench) -> None:
    while bench.killed.total() < KILLS or not bench.ways >= BOTH_WAYS:
        bench.strike()
    bench.until(lambda: not bench.live(), "all end", every_s=0.05)
    records = bench.records()
    assert sorted(records) == sorted(bench.jobs)
    sizes = Counter[str]()
    for job, record in records.items():
        assert record["state"] == "succeeded", (record["reason"], bench.cluster.logs())
        check(list(bench.noted(job).values()))
        sizes.update(line["why"] or "" for line in record["story"])
    bench.all_is_free()
    assert set(sizes) >= BOTH_WAYS
    print(f"kills {dict(bench.killed)} while {dict(bench.moments)}; {len(records)} jobs: {dict(sizes)}")  # noqa: T201
