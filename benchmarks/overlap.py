"""Whether two jobs of a lane ever compute at once: random handovers with first steps, evaluations, saves and kills.

    python benchmarks/overlap.py [--handovers 10000] [--kill-every-s 2] [--seed 1]

A real agent process and a scheduler's double served from this process. Four jobs share a lane: two say their steps
themselves and begin with one as long as twenty, one is a PyTorch script that evaluates, one that saves. Now and then
one of them, drawn at random, is killed and replaced. Each job notes when it computes; exits with 1 when two of these
times overlap. What a killed job computed last it cannot note any more.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.agents import served  # noqa: E402
from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.test_gate_kills import agent_of  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

TURN_JOB, RESTING_JOB = (str(ROOT / "tests" / "agent" / name) for name in ("turn_job.py", "resting_job.py"))
STEP_S, FIRST_S, REST_S = 0.001, 0.02, 0.02
KINDS = ("steps", "steps", "evaluate", "save")
START_MAX_S = 120.0


class ComputeSpan(NamedTuple):
    """A time in which a job computed."""

    began_s: float
    ended_s: float
    job: int


def command(kind: str, notes: Path) -> tuple[str, ...]:
    """What to run for a kind of job."""
    if kind == "steps":
        return sys.executable, TURN_JOB, str(notes), str(STEP_S), "0", "sleep", str(FIRST_S)
    return sys.executable, RESTING_JOB, str(notes), str(STEP_S), str(REST_S), kind


class LaneCrowd:
    """The jobs of the lane, those that were killed among them."""

    def __init__(self, fake: FakeScheduler, folder: Path) -> None:
        self.fake, self.folder = fake, folder
        self.kinds: dict[int, str] = {}
        self.alive: list[int] = []

    def start(self, kind: str) -> None:
        """Start a job."""
        job = len(self.kinds) + 1
        self.kinds[job] = kind
        self.alive.append(job)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.fake.want(job, *command(kind, self.folder / str(job)), env=env)

    def kill(self, rng: random.Random) -> bool:
        """Kill one that has computed, and start another of its kind; false where all have been replaced just now."""
        job = rng.choice([job for job in self.alive if self.spans(job)] or [0])
        seen = self.fake.launched(job)
        if seen is None:
            return False
        os.kill(seen["pid"], signal.SIGKILL)
        self.alive.remove(job)
        self.start(self.kinds[job])
        return True

    def spans(self, job: int) -> list[ComputeSpan]:
        """When a job computed, as it noted."""
        path = self.folder / str(job)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [ComputeSpan(float(began), float(ended), job) for _, began, ended in map(str.split, lines)]

    def in_order(self) -> list[ComputeSpan]:
        """When anybody computed, in order."""
        return sorted(span for job in self.kinds for span in self.spans(job))


def handovers(spans: list[ComputeSpan]) -> int:
    """How often another job computed than before."""
    return sum(one.job != other.job for one, other in pairwise(spans))


def overlaps(spans: list[ComputeSpan]) -> list[tuple[ComputeSpan, ComputeSpan]]:
    """Times that begin before an earlier one has ended."""
    found, latest = [], spans[0]
    for span in spans[1:]:
        if span.began_s < latest.ended_s:
            found.append((latest, span))
        latest = max(latest, span, key=lambda one: one.ended_s)
    return found


def run(wanted: int, kill_every_s: float, seed: int) -> tuple[list[ComputeSpan], int]:
    """Let jobs share a lane until there were enough handovers; when they computed, and the number of kills."""
    rng, fake, kills = random.Random(seed), FakeScheduler(), 0  # noqa: S311
    with tempfile.TemporaryDirectory() as name, served(fake) as url, agent_of(url, Path(name) / "state"):
        crowd = LaneCrowd(fake, Path(name))
        for kind in KINDS:
            crowd.start(kind)
        until(lambda: all(crowd.spans(job) for job in crowd.alive), deadline_s=START_MAX_S)
        while handovers(crowd.in_order()) < wanted:
            threading.Event().wait(rng.uniform(0.5, 1.5) * kill_every_s)
            kills += crowd.kill(rng)
        for job in crowd.alive:
            fake.end(job)
        until(lambda: len(fake.ends) == len(crowd.kinds), deadline_s=START_MAX_S)
        return crowd.in_order(), kills


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--handovers", type=int, default=10_000)
    parser.add_argument("--kill-every-s", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.monotonic()
    spans, kills = run(options.handovers, options.kill_every_s, options.seed)
    found = overlaps(spans)
    jobs, took_s = len({span.job for span in spans}), time.monotonic() - began_s
    print(f"{handovers(spans)} handovers among {jobs} jobs, {kills} kills, {took_s:.0f} s: {len(found)} overlaps")
    print(*found[:3], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
