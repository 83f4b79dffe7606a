"""A step and what is left are one thing in every world, whatever the rows of a trace tell: each cell against a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

import pytest

from colane.lab.simulate.beliefs import Belief, declare_lengths, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources
from colane.lab.simulate.world import NeutralWorld, Running, Scope, World
from colane.lab.traces.node_events import NodeEvent, NodeEventKind
from colane.lab.traces.workload import TraceJob
from colane.model.profile import Memory
from colane.scheduling.registry import create
from tests.simulate.scenes import GIB, cluster, job, workload

STEPS_PER_S = 8
"""Of every kind here; a power of two, so that no time is rounded."""
LAUNCH_S, RESTART_S = 10.0, 5.0
LOST_S, BACK_S = 70.0, 90.0
FREE = DriverConfig()

Rows = Sequence[tuple[float, float]]
"""When each job comes, and how long it runs."""
ROWS: Rows = [(0.0, 128.0), (16.0, 120.0), (32.0, 64.0), (96.0, 16.0), (100.0, 100.0)]


class Measured:
    """A table that knows every job, at one speed for each of its GPUs."""

    name = "table"
    scope = Scope.GPU
    gpu_types = ("v100",)

    def knows(self, job: TraceJob) -> bool:  # noqa: ARG002
        return True

    def alone(self, running: Running) -> float | None:
        return STEPS_PER_S * len(running.gpus) / running.job.spec.gpus

    def slowdown(self, me: Running, other: Running) -> float | None:  # noqa: ARG002
        return None

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        return None

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        return None


def in_table(jobs: Sequence[TraceJob]) -> World:
    return TableWorld(Sources((Measured(),)), jobs, FactorsWorld(1.0, jobs), ["v100"])


WORLDS: dict[str, Callable[[Sequence[TraceJob]], World]] = {
    "neutral": NeutralWorld,
    "factors": lambda jobs: FactorsWorld(1.0, jobs),
    "table": in_table,
}
HAVE: dict[str, Callable[[int], bool]] = {
    "durations": lambda _: False,
    "both": lambda _: True,
    "mixed": lambda number: number % 2 == 1,
}
"""Whether the row of a number has steps; all have durations, as two of the worlds move no job without."""

CELLS = [
    pytest.param(*cell, id="-".join(map(str, cell))) for cell in product(WORLDS, HAVE, (Belief.ORACLE, Belief.NONE))
]


def row(rows: str, number: int, at_s: float, run_s: float, **needs: object) -> TraceJob:
    steps = round(STEPS_PER_S * run_s) if HAVE[rows](number) else None
    return job(number, at_s, run_s, steps=steps, batch_size=8, **needs)  # type: ignore[arg-type]


def ends(
    world: str, belief: Belief, policy: str, made: Sequence[TraceJob], driver: DriverConfig = FREE, gpus: int = 1
) -> list[float]:
    """When each job ends in the simulator."""
    truth, machines = WORLDS[world](made), cluster(gpus)
    told = declare_lengths(made, belief, noise=0.0, seed=0, world=truth)
    beliefs = make_beliefs(belief, truth, told, machines, noise=0.0, seed=0)
    decides = create(policy, as_published=True)
    run = simulate(
        Inputs(
            cluster=machines, workload=workload(*told), world=truth, policy=decides, beliefs=beliefs, driver=driver
        )
    )  # fmt: skip
    found = dict(zip(run.ledger.rows.id, run.ledger.rows.end_s, strict=True))
    return [found[one.id] for one in made]


def known(world: str, rows: str, belief: Belief, *, by_told: bool = False) -> list[bool]:
    """Of which jobs the length is known: told, and the time of a step seen, which the neutral world never shows."""
    sees = by_told or world != "neutral"
    return [belief is Belief.ORACLE or (sees and HAVE[rows](number)) for number in range(1, len(ROWS) + 1)]


def least_left_first(
    jobs: Rows, known: Sequence[bool], launch_s: float, restart_s: float, *, loses: bool
) -> list[float]:
    """When each ends on one GPU that goes to the least left; those of unknown length last, in order."""
    left = [run_s for _, run_s in jobs]
    kept = [0.0] * len(jobs)
    end_s = [inf] * len(jobs)
    now_s, runs, begins_s = 0.0, -1, inf
    moments = sorted({at_s for at_s, _ in jobs} | ({LOST_S, BACK_S} if loses else set()))

    def rank(one: int) -> tuple[float, int]:
        return (left[one] if known[one] else inf), one

    while min(end_s) < inf or max(end_s) == inf:
        is_away = loses and LOST_S <= now_s < BACK_S
        if is_away and runs >= 0:  # what it did since it came is gone
            left[runs], runs = jobs[runs][1] - kept[runs], -1
        come = [one for one, (at_s, _) in enumerate(jobs) if at_s <= now_s and end_s[one] == inf]
        first = min(come, key=rank, default=-1)
        if first >= 0 and not is_away and first != runs and (runs < 0 or rank(first)[0] < rank(runs)[0]):
            if runs >= 0:
                kept[runs] = jobs[runs][1] - left[runs]
            runs, begins_s = first, now_s + launch_s + (restart_s if kept[first] else 0.0)
        ends_s = max(now_s, begins_s) + left[runs] if runs >= 0 else inf
        then_s = min([ends_s, *(at_s for at_s in moments if at_s > now_s)])
        if then_s == inf:
            break
        if runs >= 0:
            left[runs] -= max(0.0, then_s - max(now_s, begins_s))
            if then_s == ends_s:
                end_s[runs], runs = then_s, -1
        now_s = then_s
    return end_s


@pytest.mark.parametrize(("world", "rows", "belief"), CELLS)
@pytest.mark.parametrize("loses", [False, True], ids=["stays", "lost-node"])
def test_the_least_left_goes_first(world: str, rows: str, belief: Belief, *, loses: bool) -> None:
    events = (NodeEvent(LOST_S, "n0", NodeEventKind.LOST), NodeEvent(BACK_S, "n0", NodeEventKind.BACK)) if loses else ()
    driver = DriverConfig(launch_s=LAUNCH_S, restart_s=RESTART_S, node_events=events)
    made = [row(rows, number, *one) for number, one in enumerate(ROWS, 1)]
    found = ends(world, belief, "srtf", made, driver)
    expected = least_left_first(ROWS, known(world, rows, belief), LAUNCH_S, RESTART_S, loses=loses)
    assert found == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("world", "rows", "belief"), CELLS)
def test_turns_go_to_the_least_left(world: str, rows: str, belief: Belief) -> None:
    made = [row(rows, number, *one, gpu_memory_bytes=GIB) for number, one in enumerate(ROWS, 1)]
    found = ends(world, belief, "salus-srtf", made)
    expected = least_left_first(ROWS, known(world, rows, belief, by_told=True), 0.0, 0.0, loses=False)
    assert found == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(("world", "rows", "belief"), CELLS)
def test_an_elastic_job_grows_to_all_that_is_free(world: str, rows: str, belief: Belief) -> None:
    """Beside a rigid job of three GPUs it has one; once that has ended it has four."""
    made = [row(rows, 1, 0.0, 200.0, gpus=3), row(rows, 2, 0.0, 1000.0, gpus=4, sizes=(1, 2, 4))]
    assert ends(world, belief, "f-sched", made, gpus=4) == pytest.approx([200.0, 200.0 + 1000.0 - 200.0 / 4], abs=0.5)
