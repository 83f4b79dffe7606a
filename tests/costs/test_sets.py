"""What it costs to foresee a set grows with its size as its pairs do, whichever smaller sets were measured."""

from __future__ import annotations

import pytest
from benchmarks.calls import calls_of

from colane.core import core
from tests.perf.test_several import believed, foreseen

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)


def calls(count: int, sharing: str) -> int:
    """Functions called to foresee a set of so many alike jobs, when all smaller sets of them were measured."""
    beliefs = believed({n * "a": 1.0 + 0.1 * n for n in range(2, count)}, sharing=sharing)
    foreseen(beliefs, "aa", sharing)  # what is fitted once to all that was measured is not counted
    return calls_of(foreseen, beliefs, count * "a", sharing)


@pytest.mark.parametrize("sharing", ["mps", "time-slice"])
def test_a_set_of_alike_jobs_is_foreseen_in_a_time_that_grows_with_its_pairs(sharing: str) -> None:
    assert calls(16, sharing) < (16 / 8) ** 2 * calls(8, sharing) * 1.2
