"""Two jobs that change their turn after every step, until that has happened as often as is asked for."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.agent.agents import Running
from tests.agent.lane import Lane
from tests.emulated.machine import Machine, Ran

LOOPS = str(Path(__file__).with_name("loops.py"))
KERNEL_MS = 0.2
ENDLESS = str(10**9)
START_S = 120.0
JOBS = (1, 2)
LOOK_EVERY_S = 0.1


class Handovers(NamedTuple):
    """What was seen.

    Attributes:
        made: How often one job's turn was followed by the other's.
        under_way_max: The most streams with work under way when a turn was given up: 0 where the GPU was idle.
        late: Kernels that ran while the other job had its turn.
    """

    made: int
    under_way_max: int
    late: list[tuple[float, float]]


def late_kernels(ran: Ran, others: Iterable[Ran]) -> list[tuple[float, float]]:
    """What ran of a job while another had its turn, as begin and end."""
    late = []
    for other in others:
        turns = sorted(other.turns())
        ends_s = [to_s for _, to_s in turns]
        for kernel in ran.kernels:
            at = bisect_left(ends_s, kernel.began_s)
            while at < len(turns) and ends_s[at] <= kernel.began_s:
                at += 1
            if at < len(turns) and turns[at][0] < kernel.ended_s - 1e-6:
                late.append((kernel.began_s, kernel.ended_s))
    return late


async def hand_over(agent: Running, lane: Lane, machine: Machine, count: int, within_s: float = START_S) -> Handovers:
    """Let two jobs run as far ahead of the GPU as they may, until it was handed over so often; then pause and end them.

    A job that was ended within its turn would leave kernels behind that a driver takes back.
    """
    for job in JOBS:
        command = (sys.executable, LOOPS, "plain", ENDLESS, str(KERNEL_MS))
        lane.fake.want(job, *command, env=lane.env | machine.env, turn={"paused": True})
    await agent.until(lambda: all(machine.at_boundaries(job) for job in JOBS), "all wait", START_S)
    lane.fake.resume(*JOBS)
    watch = _Watch(machine)
    await agent.until(lambda: watch.handovers() >= count, f"{count} handovers", within_s)
    for job in JOBS:
        lane.fake.pause(job)
    await lane.is_in(agent, JOBS, ("paused",))
    await lane.end(agent, JOBS)
    return seen(*(machine.ran(job) for job in JOBS))


class _Watch:
    """Counts handovers while the jobs run; it reads what is new, and not often, for the agent is in this process."""

    def __init__(self, machine: Machine) -> None:
        self._read = dict.fromkeys(machine.home.glob("kernels.*"), 0)
        self._turns: list[tuple[float, int]] = []
        self._looked_s, self._handovers = 0.0, 0

    def handovers(self) -> int:
        if time.monotonic() - self._looked_s < LOOK_EVERY_S:
            return self._handovers
        self._looked_s = time.monotonic()
        for job, (path, read) in enumerate(self._read.items()):
            with path.open("rb") as file:
                file.seek(read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[path] += len(whole)
            self._turns += [(float(line.split()[2]), job) for line in whole.splitlines() if b" go:" in line]
        self._handovers = changes(self._turns)
        return self._handovers


def changes(turns: Iterable[tuple[float, int]]) -> int:
    """How often one job's turn is followed by another's, given when each begins and whose it is."""
    return sum(job != after for (_, job), (_, after) in pairwise(sorted(turns)))


def seen(one: Ran, other: Ran) -> Handovers:
    """Judge what two jobs had their GPU do."""
    turns = [(from_s, job) for job, ran in enumerate((one, other)) for from_s, _ in ran.turns()]
    given_up = [mark for ran in (one, other) for mark in ran.marks if mark.label.startswith("yield")]
    return Handovers(
        changes(turns),
        max(int(mark.label.split(":")[2]) for mark in given_up),
        late_kernels(one, [other]) + late_kernels(other, [one]),
    )
