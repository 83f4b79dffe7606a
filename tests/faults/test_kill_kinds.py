"""kill -9 under `colane` of jobs of every kind: small, gangs, elastic, without GPUs, serving, long and suspended.

What is killed is counted by kind, scheduler and agents too, and a kill counts only where its process was there and died
of it: `COLANE_KILLS=500 pytest -s tests/faults/test_kill_kinds.py` prints how many there were of each. Jobs that are
parked on the host are killed in `test_parking.py`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from colane.agent.files.jobdir import JobDir
from colane.client.errors import Refused
from colane.verbs.of_jobs import RESUME, SUSPEND

from .bench import benched
from .cluster import Cluster
from .test_kill_policies import GANG_STEPS, KILLS, STEPS, PolicyBench

WANTED: Final[Mapping[str, int]] = {"small": 4, "gang": 1, "elastic": 2, "cpu": 2, "serving": 2, "long": 2}
"""Jobs of each kind that are kept in the queue."""
FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "small": {"preemptible": True},
    "gang": {"gpus": 2, "multi_node": True},
    "elastic": {"gpus": "1..2", "preemptible": True},
    "cpu": {"gpus": 0},
    "serving": {"kind": "inference"},
    "long": {"priority": 1},
}
SUSPENDED: Final = "suspended"
LONG_STEPS: Final = 600
"""Of jobs that are there long enough to be suspended; others are over by then."""
GOES_ON: Final = 0.25
"""The part of suspended jobs that go on in each round."""
ALL_ARE_STRUCK: Final = 300
"""Of so many kills some strike each kind."""


class KindsBench(PolicyBench):
    """Two nodes of two devices, and jobs of each kind."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.kinds: dict[int, str] = {}
        self.killed: Counter[str] = Counter()
        self.suspended: set[int] = set()
        self.paused: set[int] = set()

    def fill(self) -> None:
        """Keep the queue as long as it was."""
        live = Counter(self.kinds[job] for job in self.live())
        for kind, wanted in WANTED.items():
            for _ in range(live[kind], wanted):
                lasts = {"gang": GANG_STEPS, "long": LONG_STEPS}
                total = lasts.get(kind) or self.random.randint(*STEPS)
                before = set(self.totals)
                self.bring(1, total, family=kind, **FIELDS[kind])
                self.kinds |= dict.fromkeys(self.totals.keys() - before, kind)
        self.suspend()

    def suspend(self) -> None:
        """Have long jobs wait at a step boundary, and let one of those that do go on."""
        client = self.cluster.client()
        running = [job for job, one in self.live().items() if one["state"] == "running" and self.kinds[job] == "long"]
        for job in running:
            with suppress(Refused):  # it has made no step yet
                client.act(SUSPEND, job)
                self.suspended.add(job)
        for job in sorted(self.suspended):
            if self.random.random() < GOES_ON:
                self.go_on(job)
        self.paused = {job for job, one in self.live().items() if one["state"] == "paused"}

    def go_on(self, job: int) -> None:
        """Let a suspended job go on, if it has not ended."""
        self.suspended.discard(job)
        with suppress(Refused):
            self.cluster.client().act(RESUME, job)

    def strike(self, job: int, place: JobDir) -> bool:
        """Kill a job's process or its supervisor, and count its kind."""
        has_died = super().strike(job, place)
        self.killed[SUSPENDED if job in self.suspended & self.paused else self.kinds[job]] += has_died
        return has_died


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KindsBench]:
    cluster = Cluster(tmp_path, policy="colane", devices="cpu:2:1GB", protection_factor=0.0)
    with benched(KindsBench, cluster) as bench:
        yield bench


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.timeout(600 + 20 * KILLS)
def test_every_job_of_every_kind_ends_once(bench: KindsBench) -> None:
    kills = 0
    while kills < KILLS:
        kills += bench.kill_round()
    for job in sorted(bench.suspended):
        bench.go_on(job)
    bench.until(lambda: not bench.live(), "all end")
    sys.stdout.write(f"{kills} kills, of jobs {dict(bench.killed)}, of services {kills - bench.killed.total()}\n")
    records = bench.records()
    assert sorted(records) == sorted(bench.totals), bench.cluster.logs()
    assert not (bench.notes / "twice").exists(), bench.cluster.logs()
    for job, total in bench.totals.items():
        made = [bench.steps(job, attempt) for attempt in range(1, records[job]["attempt"] + 1)]
        assert all(each <= total for ranks in made for each in ranks), (job, made)
        if not bench.struck[job]:
            ranks = len({gpu.partition("/")[0] for gpu in records[job]["gpus"]}) or 1  # a process on each node
            ended = (records[job]["state"], made[-1])
            assert ended == ("succeeded", [total] * ranks), (bench.kinds[job], records[job]["story"], made)
    assert [node["jobs"] for node in bench.cluster.client().nodes()] == [[], []]
    if kills >= ALL_ARE_STRUCK:
        assert set(bench.killed) == {*WANTED, SUSPENDED}
