"""What turns cost: from one job's step end to the other's step begin, time lost at a quantum, the next after a kill.

    python benchmarks/handoff.py [--seconds 5] [--kills 20]

A real agent process, real jobs that keep a core busy, and a scheduler's double served from this process.
Bounds, on a machine that does nothing else: handoff p50 150 us and p99 1 ms; 1 % of the time lost at a quantum of
50 ms; the next job runs 5 ms after the kernel has reaped a killed holder. Exits with 1 when a bound is broken.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.agents import served  # noqa: E402
from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

JOB = str(ROOT / "tests" / "agent" / "turn_job.py")
STEP_S = 0.002
QUANTUM_S = 0.05
HANDOFF_P50_MAX_S, HANDOFF_P99_MAX_S = 150e-6, 1e-3
LOST_RATIO_MAX = 0.01
KILL_MAX_S = 5e-3
START_MAX_S = 120.0

AGENT = """
import sys
from pathlib import Path
from colane.agent.config import AgentConfig
from colane.agent.main import run_agent
run_agent(AgentConfig(name="node-1", scheduler_url=sys.argv[1], state_dir=Path(sys.argv[2]), devices=sys.argv[3],
                      stop_jobs=True))
"""


class Step(NamedTuple):
    """One step of one job."""

    began_s: float
    ended_s: float
    job: int


Command = Callable[[Path], Sequence[str]]
"""What to run, given the file for its notes."""


def spinning(notes: Path) -> Sequence[str]:
    """A job that keeps a core busy."""
    return sys.executable, JOB, str(notes), str(STEP_S), "0", "spin"


class Lane:
    """Jobs that share a lane under a real agent."""

    def __init__(self, fake: FakeScheduler, folder: Path, command: Command) -> None:
        self.fake, self.folder, self.command = fake, folder, command
        self.jobs: list[int] = []
        self._last = 0

    def start(self, count: int, *, lanes: int = 1) -> None:
        """Start jobs in so many lanes and wait until all have stepped."""
        for _ in range(count):
            self._last += 1
            self.jobs.append(self._last)
            command = self.command(self.folder / str(self._last))
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            turn = {"slots": [{"gpu": 0, "lane": self._last % lanes}]}
            self.fake.want(self._last, *command, env=env, turn=turn)
        until(lambda: all(self.steps(job) for job in self.jobs), deadline_s=START_MAX_S)

    def steps(self, job: int) -> list[Step]:
        """All steps of a job so far."""
        path = self.folder / str(job)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        fields = (line.split() for line in lines)
        return [Step(float(began), float(ended), job) for _, began, ended in fields]

    def between(self, from_s: float, to_s: float) -> list[Step]:
        """Steps of all jobs within a time, in order."""
        every = (step for job in self.jobs for step in self.steps(job))
        return sorted(step for step in every if step.began_s >= from_s and step.ended_s <= to_s)

    def watch(self, seconds: float) -> list[Step]:
        """Let them run; gives the steps of that time."""
        from_s = time.monotonic()
        threading.Event().wait(seconds)
        return self.between(from_s, time.monotonic())

    def holder(self) -> int:
        """The job that has stepped last."""
        return max((self.steps(job)[-1].ended_s, job) for job in self.jobs)[1]

    def end(self) -> None:
        """End all jobs."""
        for job in self.jobs:
            self.fake.end(job)
        until(lambda: all((job, 1) in self.fake.ends for job in self.jobs), deadline_s=START_MAX_S)
        self.jobs.clear()


@contextmanager
def lane_of(
    rule: str, quantum_s: float, command: Command = spinning, devices: str = "cpu:1:1GB", agent: str = AGENT
) -> Iterator[Lane]:
    """Have an agent with one device."""
    fake = FakeScheduler()
    fake.turns = {"rule": rule, "quantum_s": quantum_s}
    with tempfile.TemporaryDirectory() as folder, served(fake) as url:
        process = subprocess.Popen([sys.executable, "-c", agent, url, f"{folder}/state", devices])
        try:
            until(lambda: fake.reports, deadline_s=START_MAX_S)
            yield Lane(fake, Path(folder), command)
        finally:
            process.terminate()
            process.wait()


def handoffs_s(steps: Sequence[Step]) -> list[float]:
    """Times from the end of one job's step to the begin of another's, shortest first."""
    return sorted(after.began_s - before.ended_s for before, after in pairwise(steps) if after.job != before.job)


def lost_ratio(steps: Sequence[Step]) -> float:
    """Part of the time in which no step ran."""
    whole_s = steps[-1].ended_s - steps[0].began_s
    return 1 - sum(step.ended_s - step.began_s for step in steps) / whole_s


def overlaps(steps: Sequence[Step]) -> int:
    """How often a step began before the one before it had ended."""
    return sum(after.began_s < before.ended_s for before, after in pairwise(steps))


def after_kill_s(lane: Lane) -> float:
    """Kill the holder; time from its end, as the kernel tells it, to the next job's step."""
    job = lane.holder()
    seen = until(lambda: lane.fake.launched(job), deadline_s=START_MAX_S)
    pidfd = os.pidfd_open(seen["pid"])
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    waiter.poll()
    reaped_s = time.monotonic()
    os.close(pidfd)
    lane.jobs.remove(job)
    later = until(lambda: lane.between(reaped_s - STEP_S / 2, time.monotonic()), deadline_s=START_MAX_S)
    return later[0].began_s - reaped_s


def at(values: Sequence[float], ratio: float) -> float:
    """Value below which that part of sorted values lies."""
    return values[min(len(values) - 1, int(len(values) * ratio))]


def measure(rule: str, quantum_s: float, seconds: float, jobs: int = 2) -> list[Step]:
    """Steps of two jobs that share a lane."""
    with lane_of(rule, quantum_s) as lane:
        lane.start(jobs)
        steps = lane.watch(seconds)
        lane.end()
    return steps


def measure_kills(kills: int) -> list[float]:
    """Times to the next step after kills of the holder."""
    with lane_of("fair", 1.0) as lane:  # each has had its first turn soon
        lane.start(3)
        times_s = []
        for _ in range(kills):
            times_s.append(after_kill_s(lane))
            lane.start(1)
        lane.end()
    return sorted(times_s)


def report(name: str, value: float, bound: float, show: Callable[[float], str]) -> bool:
    """Print a line; whether it is within its bound."""
    print(f"{name:<58} {show(value):>10}   at most {show(bound)}")
    return value <= bound


def microseconds(value: float) -> str:
    """As people read it."""
    return f"{value * 1e6:.0f} us"


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each pair of jobs runs")
    parser.add_argument("--kills", type=int, default=20, help="how many holders are killed")
    arguments = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    alone = lost_ratio(measure("fair", 0.0, arguments.seconds, jobs=1))
    by_step = measure("fair", 0.0, arguments.seconds)
    by_quantum = measure("fair", QUANTUM_S, arguments.seconds)
    steps_s, turns_s = handoffs_s(by_step), handoffs_s(by_quantum)
    lost = lost_ratio(by_quantum) - alone
    kills_s = measure_kills(arguments.kills)
    print(f"{len(steps_s)} handoffs by step, {len(turns_s)} by quantum; overlaps {overlaps(by_step + by_quantum)}")
    print(f"longest {microseconds(steps_s[-1])}; a job alone is without a step for {alone:.2%} of the time")
    good = [
        report("handoff at every step of 2 ms, p50", at(steps_s, 0.5), HANDOFF_P50_MAX_S, microseconds),
        report("handoff at every step of 2 ms, p99", at(steps_s, 0.99), HANDOFF_P99_MAX_S, microseconds),
        report("handoff at a quantum of 50 ms, p50", at(turns_s, 0.5), HANDOFF_P50_MAX_S, microseconds),
        report("lost at a quantum of 50 ms, beyond a job alone", lost, LOST_RATIO_MAX, "{:.2%}".format),
        report(f"next step after a killed holder, p50 of {len(kills_s)}", at(kills_s, 0.5), KILL_MAX_S, microseconds),
    ]
    return int(not all(good) or overlaps(by_step + by_quantum) > 0)


if __name__ == "__main__":
    sys.exit(main())
