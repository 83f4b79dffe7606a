"""Jobs are parked for more urgent ones and come back while jobs, their supervisors, agent and scheduler are killed.

No job is lost, none runs twice at once, no step of an attempt is made twice, no device has two jobs, and all devices
are free at the end.
`COLANE_KILLS=500 pytest tests/faults/test_parking.py` kills more often than the tests of every day.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.agent import processes
from colane.api.jobs import JobObject

from .bench import FaultBench, benched, kill
from .cluster import Cluster

AGENT_TESTS = Path(__file__).parents[1] / "agent"
JOB, POLICY = str(AGENT_TESTS / "turn_job.py"), f"{AGENT_TESTS / 'urgent_policy.py'}:Urgent"
DEVICES = min(2, len(os.sched_getaffinity(0)))
KILLS = int(os.environ.get("COLANE_KILLS", "16"))
STEP_S, CALM_STEPS, URGENT_STEPS = 0.002, 250, 25
CALM, URGENT = 2 * DEVICES, DEVICES
"""Jobs that run and wait at the begin of every round, and those for which they are parked."""
JOB_KILLS_MAX = 4
SERVICE_KILL_RATIO = 0.4
"""In so many rounds the agent is killed, and in as many, chosen apart, the scheduler."""


class ParkingBench(FaultBench):
    """Calm jobs, and urgent ones for which they are parked."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.totals: dict[int, int] = {}
        self.struck: set[int] = set()
        self.orphaned: Counter[int] = Counter()
        self.parked: set[int] = set()

    def bring(self, count: int, priority: int, total: int) -> list[int]:
        script = 'exec "$0" "$1" "$2/$COLANE_JOB_ID-$COLANE_ATTEMPT" "$3" "$4"'
        words = [script, sys.executable, JOB, self.notes, STEP_S, total]
        jobs = self.submit(count, *words, env={"PATH": os.environ["PATH"]}, priority=priority)
        self.totals |= dict.fromkeys(jobs, total)
        return jobs

    def live(self) -> dict[int, JobObject]:
        live = super().live()
        self.parked |= {number for number, job in live.items() if job["state"] == "paused"}
        return live

    def attempts(self, job: int) -> list[list[tuple[float, float]]]:
        """Begins and ends of a job's steps by attempt, after a look that it made each once, one attempt after another.

        It has more than one only where its supervisor was killed.
        """
        noted = self.noted(job)
        assert all(number <= 1 + self.orphaned[job] for number in noted), f"job {job} was run again"
        made = [self._steps(job, lines) for lines in noted.values()]
        ended_s = [steps[-1][1] for steps in made if steps]
        began_s = [steps[0][0] for steps in made if steps]
        assert all(end_s <= begin_s for end_s, begin_s in zip(ended_s, began_s[1:], strict=False)), (
            f"job {job} ran twice"
        )
        return made

    def _steps(self, job: int, lines: list[list[str]]) -> list[tuple[float, float]]:
        assert [int(line[0]) for line in lines] == list(range(1, len(lines) + 1)), f"job {job} made a step twice"
        return [(float(began), float(ended)) for _, began, ended in lines]

    def steps(self, job: int) -> list[tuple[float, float]]:
        """The same of all its attempts."""
        return [step for attempt in self.attempts(job) for step in attempt]

    def arrange(self) -> list[int]:
        """Have calm jobs run, and urgent ones come; wait for a moment around the parking that chance chooses."""
        live = self.live()
        calm = sum(job["priority"] == 0 for job in live.values())
        self.bring(max(0, CALM - calm), 0, CALM_STEPS)
        self.until(self.one_runs, "a job runs")
        urgent = self.bring(URGENT, 1, URGENT_STEPS)
        moment = self.random.choice(("at once", "leaving", "parked", "replaced", "over"))
        self.until(lambda: self.is_at(moment, urgent), moment)
        return list(self.live())

    def one_runs(self) -> bool:
        """Whether one runs, or all have ended unseen."""
        live = self.live()
        return not live or any(job["state"] == "running" for job in live.values())

    def is_at(self, moment: str, urgent: list[int]) -> bool:
        """Whether a moment has come, or was missed."""
        live = self.live()
        return (
            moment == "at once"
            or not any(job in live for job in urgent)
            or (moment == "leaving" and any(job["state"] == "paused" for job in live.values()))
            or (moment == "parked" and any(job["on_host_bytes"] == 0 for job in live.values()))
            or (moment == "replaced" and any(self.steps(job) for job in urgent))
        )

    def kill_round(self, kills_max: int) -> int:
        """Kill some of all that live, then start again what serves them; how many were killed."""
        jobs = self.arrange()
        services = [name for name in ("server", "agent") if self.random.random() < SERVICE_KILL_RATIO]
        some = self.random.sample(jobs, min(len(jobs), JOB_KILLS_MAX))
        victims = [*services, *map(str, some)][:kills_max]
        self.random.shuffle(victims)
        killed = sum([self.strike(victim) for victim in victims])
        self.restart(self.random.sample(services, len(services)))
        return killed

    def strike(self, victim: str) -> bool:
        """Kill a service by its name, a job or its supervisor by number; false where there is none."""
        if not victim.isdigit():
            self.cluster.kill(victim)
            return True
        jobdir = self.jobdir(int(victim), 1 + self.orphaned[int(victim)])
        started, claimed_by = jobdir.started(), jobdir.claimed_by()
        who = processes.identify(int(started["pid"])) if started and self.random.random() < 0.5 else claimed_by
        if who is None or not kill(who):
            return False
        self.struck.add(int(victim))
        self.orphaned[int(victim)] += who == claimed_by
        return True


def at_once_max(steps: list[tuple[float, float]]) -> int:
    """How many steps were made at the same time, at most."""
    changes = sorted([(began_s, 1) for began_s, _ in steps] + [(ended_s, -1) for _, ended_s in steps])
    now, most = 0, 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ParkingBench]:
    cluster = Cluster(tmp_path, POLICY, devices=f"cpu:{DEVICES}:1GB", protection_factor=0.0)
    with benched(ParkingBench, cluster) as bench:
        yield bench


@pytest.mark.live
@pytest.mark.faults
@pytest.mark.timeout(300 + 5 * KILLS)
def test_kills_around_parking(bench: ParkingBench) -> None:
    kills = 0
    while kills < KILLS or not bench.parked:
        kills += bench.kill_round(KILLS - kills)
    bench.bring(DEVICES, 0, URGENT_STEPS)
    bench.until(lambda: not bench.live(), "all end")
    records = bench.records()
    assert set(records) == set(bench.totals)
    for job, total in bench.totals.items():
        made = [len(steps) for steps in bench.attempts(job)]
        assert records[job]["attempt"] <= 1 + bench.orphaned[job]
        if job not in bench.struck:
            assert (records[job]["state"], made) == ("succeeded", [total]), bench.cluster.logs()
        assert max(made, default=0) <= total
    assert at_once_max([step for job in bench.totals for step in bench.steps(job)]) <= DEVICES
    bench.all_is_free()
