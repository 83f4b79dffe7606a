"""Jobs of tests that share one lane of an agent in this process, and what they note."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.agent.agents import Running
from tests.agent.fake_scheduler import FakeScheduler, Object

JOB = str(Path(__file__).with_name("turn_job.py"))
STEP_S = 0.002
GATED = ("running", "waiting")
BOUND_S = 2.0
"""For agents whose jobs reach no boundary: longer than one that does reach some may wait for a core."""
QUIET = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
"""Environment of jobs that use PyTorch."""


class Lane:
    """Jobs of one lane, and what they noted."""

    def __init__(self, fake: FakeScheduler, env: dict[str, str], folder: Path) -> None:
        self.fake, self.env, self.folder = fake, env, folder

    def want(self, job: int, *, step_s: float = STEP_S, total: int = 0, **turn: Any) -> None:
        if total:
            turn.setdefault("steps_total", total)
        self.fake.want(job, sys.executable, JOB, str(self.notes(job)), str(step_s), str(total), env=self.env, turn=turn)

    def notes(self, job: int) -> Path:
        return self.folder / f"notes-{job}"

    def steps(self, job: int) -> list[tuple[float, float]]:
        """Begin and end of each step."""
        if not self.notes(job).exists():
            return []
        lines = self.notes(job).read_bytes().split(b"\n")[:-1]
        numbered = [line.split() for line in lines]
        assert [int(number) for number, *_ in numbered] == list(range(1, len(lines) + 1)), "a step is done twice"
        return [(float(began), float(ended)) for _, began, ended in numbered]

    def progress(self, job: int) -> Object:
        seen = self.fake.launched(job) or {}
        return dict(seen.get("progress") or {})

    def count(self, job: int) -> int:
        return len(self.steps(job))

    def pid(self, job: int) -> int:
        seen = self.fake.launched(job)
        assert seen is not None
        return int(seen["pid"])

    async def goes_on(self, agent: Running, jobs: Sequence[int], steps: int = 3) -> None:
        """Wait until each of these has done some more steps."""
        goal = {job: self.count(job) + steps for job in jobs}
        await agent.until(lambda: all(self.count(job) >= goal[job] for job in jobs), f"jobs {jobs} go on")

    async def is_in(self, agent: Running, jobs: Sequence[int], states: Sequence[str]) -> None:
        await agent.until(lambda: all(self.progress(job).get("turn") in states for job in jobs), f"{jobs} are {states}")

    async def says(self, agent: Running, words: str) -> None:
        """Wait for a message with these words."""
        await agent.until(lambda: self.fake.is_told(words), f"a message: {words}")

    async def end(self, agent: Running, jobs: Sequence[int]) -> None:
        for job in jobs:
            self.fake.end(job)
        await agent.until(lambda: all((job, 1) in self.fake.ends for job in jobs), "the ends")


def overlaps(lane: Lane, jobs: Sequence[int], from_s: float) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    spans = sorted(span for job in jobs for span in lane.steps(job) if span[0] >= from_s)
    return [(one, other) for one, other in pairwise(spans) if other[0] < one[1]]
