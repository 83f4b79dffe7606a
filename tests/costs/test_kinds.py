"""What each event costs by kind of job, counted in calls, as ratios to `fifo-skip` on the same jobs."""

from __future__ import annotations

from functools import cache

import pytest
from benchmarks.calls import calls_of
from benchmarks.decide import KINDS, Size, of_kind

from colane.core import core

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

SIZE = Size(nodes=9, gpus=8, queued=200, families=26)
"""More GPUs than where everything is looked at each time."""

REPEAT = 4


@cache
def calls(policy: str, kind: str) -> dict[str, float]:
    """Functions called for each event, median."""
    return of_kind(policy, kind, SIZE, REPEAT, calls_of)


MOST: dict[str, dict[str, float]] = {
    "plain": {"arrival": 85, "report": 85, "end": 14.1, "look": 76},
    "unknown": {"arrival": 10.2, "report": 99, "end": 20.2, "look": 258},
    "stoppable": {"arrival": 10.3, "report": 80, "end": 21.4, "look": 102},
    "gang": {"arrival": 11.8, "report": 67.5, "end": 16.3, "look": 122},
    "wide": {"arrival": 12.1, "report": 39.3, "end": 13.1, "look": 228},
    "elastic": {"arrival": 155, "report": 137, "end": 73, "look": 69},
    "due": {"arrival": 23.8, "report": 13, "end": 14.1, "look": 42},
    "untold-gang": {"arrival": 11.8, "report": 6.2, "end": 16.2, "look": 103},
    "untold-wide": {"arrival": 12.1, "report": 6.7, "end": 16.1, "look": 1692},
}
"""Times what `fifo-skip` calls: a tenth above what was measured, so that no cell grows unseen."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_job_costs_more_beside_fifo(kind: str) -> None:
    ours, base = calls("colane", kind), calls("fifo-skip", kind)
    assert MOST[kind].keys() == ours.keys() - {"longest"}
    dear = {event: ours[event] / base[event] for event, most in MOST[kind].items() if ours[event] > most * base[event]}
    assert not dear
