"""What a report costs that teaches does not grow with the number of jobs of whose kind it teaches."""

from __future__ import annotations

from statistics import median

import pytest
from benchmarks.calls import calls_of
from benchmarks.lessons import Running

from colane.core import core

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

ROUNDS = 3
"""By then every report ends a window of its job, and the memory of its kind is known."""


def calls_a_report(policy: str, running: int, queued: int = 0) -> float:
    """Functions called for one report that teaches."""
    made = Running(policy, running, queued)
    for _ in range(ROUNDS):
        for event, at_s in made.reports():
            made.step(event, at_s)
    before, calls = made.updates, []
    for event, at_s in made.reports()[:24]:
        calls.append(calls_of(made.step, event, at_s))
    assert made.updates - before == len(calls), "each of them has taught"
    return median(calls)


@pytest.mark.parametrize("policy", ["fifo", "colocate", "colane"])
def test_an_update_costs_the_same_however_many_jobs_run(policy: str) -> None:
    assert calls_a_report(policy, 256) < 1.1 * calls_a_report(policy, 32)
