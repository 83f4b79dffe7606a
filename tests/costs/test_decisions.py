"""What an arrival costs while every GPU is taken does not grow with the kinds of jobs that wait."""

from __future__ import annotations

from statistics import median

import pytest
from benchmarks.calls import calls_of
from benchmarks.decide import Size, fill, submissions

from colane.core import core

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

QUEUED = 400
ARRIVALS = 4


def calls_an_arrival(policy: str, families: int) -> float:
    """Functions called for one job that comes and finds nothing, where others of its family wait."""
    made, _ = fill(policy, Size(nodes=32, gpus=8, queued=QUEUED, families=families))
    coming = submissions(QUEUED, 2 * ARRIVALS, families)
    for event in coming[:ARRIVALS]:
        made.step([event], 3.0)
    calls = [calls_of(made.step, [event], 3.0) for event in coming[ARRIVALS:]]
    assert all(job.placement is None for job in (made.state.jobs[event.job] for event in coming))
    return median(calls)


@pytest.mark.parametrize("policy", ["fifo", "colocate", "colane"])
def test_an_arrival_costs_the_same_however_many_families_wait(policy: str) -> None:
    assert calls_an_arrival(policy, 128) < 2 * calls_an_arrival(policy, 16)
