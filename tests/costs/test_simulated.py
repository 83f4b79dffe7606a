"""What an event of a simulation costs, in functions called: a job that comes and starts at once, and its end."""

from __future__ import annotations

import pytest
from benchmarks.calls import calls_of

from colane.core import core
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.registry import create
from tests.simulate.scenes import cluster, job, workload

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

CALLS_MAX = 325
"""415 were called on 2026-11-30 before steps, plans and rows left out what nothing asks for, and 316 since."""


def calls(jobs: int) -> int:
    made = [job(number, 10.0 * number, 35.0, steps=None) for number in range(1, jobs + 1)]
    inputs = Inputs(
        cluster=cluster(8), workload=workload(*made), world=NeutralWorld(made), policy=create("fifo", as_published=True)
    )
    return calls_of(simulate, inputs)


def test_an_event_of_fifo_costs_little_where_its_job_starts_at_once() -> None:
    calls(1)  # what is made once
    assert (calls(300) - calls(100)) / (2 * 200) < CALLS_MAX
