"""What a look costs that has much to look at: as much a GPU however many there are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from benchmarks.calls import calls_of
from benchmarks.decide import KINDS, Metered, Size, cluster, of_kind, submissions

from colane.core import core
from colane.core.events import Launched, Submitted, Tick
from colane.model.job import JobId, JobSpec

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

CALLS_A_GPU = 2_500
"""Functions called for each GPU, beside 26 families that wait."""


@cache
def look(nodes: int) -> tuple[int, list[int]]:
    """Jobs that were started, and functions called in each of the steps that it took.

    Families of unknown length that may be stopped have filled all GPUs, nearly twice as many wait, and everything is
    looked at.
    """
    full = cluster("colane", Size(nodes, 8, 0, 26))
    jobs = [
        Submitted(JobId(k), JobSpec(name="j", family=f"f{k % 26}", batch_size=64, preemptible=True))
        for k in range(8 * nodes * 8 // 3)
    ]
    full.step(jobs, 1.0, whole=True)
    running = [job for job in full.state.jobs.values() if job.placement is not None]
    full.step([Launched(job.id, job.attempt, 1, 2.0) for job in running], 2.0)
    calls = [calls_of(full.step, [Tick()], 400.0)]
    while full.goes_on:
        calls.append(calls_of(full.step, [], 400.0))
    return sum(job.placement is not None for job in full.state.jobs.values()) - len(running), calls


@pytest.mark.parametrize("nodes", [8, 15, 30])
def test_a_look_costs_no_more_a_gpu_however_many_there_are(nodes: int) -> None:
    """Of families of which no job has ended none gives way to another, so that nothing changes."""
    changes, calls = look(nodes)
    assert changes == 0
    assert sum(calls) < CALLS_A_GPU * 8 * nodes


CALLS_A_STEP = 70_000
"""Functions that no step of a look calls more of, however many wait: compiled that is some 10 ms."""


@pytest.mark.parametrize("kind", ["plain", "unknown", "untold-gang", "elastic"])
def test_no_step_of_a_look_at_everything_ranks_all_that_wait(kind: str) -> None:
    world = Metered("colane", kind, Size(30, 8, 3_000, 26), _unmetered)
    world.step(submissions(0, 240 + 3_000, 26, kind), 1.0)
    world.launch(2.0)
    world.step([Tick()], 302.5)
    world.steps.clear()
    world.meter = calls_of
    world.step([Tick()], 703.0)
    assert max(world.steps) <= CALLS_A_STEP


def _unmetered(action: Callable[[], object]) -> float:
    action()
    return 0.0


LONGEST: dict[str, int] = {
    "plain": 98_000, "unknown": 145_000, "stoppable": 195_000, "gang": 103_000, "wide": 114_000, "elastic": 70_000,
    "due": 63_000, "untold-gang": 109_000, "untold-wide": 232_000, "parked": 63_000, "guaranteed": 102_000,
}  # fmt: skip
"""Functions called in the longest step: a tenth above what was measured, so that none grows unseen.

Where owners tell lengths it decides 32 changes: while what was learnt ranked their jobs anew, that cut it short.
"""


@pytest.mark.parametrize("size", [Size(8, 8, 600, 26), Size(30, 8, 1_000, 26)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_step_is_long_whatever_there_is_to_do(kind: str, size: Size) -> None:
    """A look at jobs that may be stopped is many steps: where it was one, that called 1.9 million."""
    assert of_kind("colane", kind, size, 4, calls_of)["longest"] <= LONGEST[kind]


def test_what_gangs_ask_running_jobs_counts_as_looked_at() -> None:
    """Of 1,000 families each is to be asked of each other: a step called 1,543,000 functions."""
    assert of_kind("colane", "untold-wide", Size(30, 8, 1_000, 1_000), 4, calls_of)["longest"] <= 485_000
