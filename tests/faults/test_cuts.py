"""Cuts of random length and scope: what stands goes on, unless it was started elsewhere; see `cuts`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cuts import Step, cut_about, problems_of
from .machines import Wired, needs_namespaces


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    needs_namespaces()
    made = Wired(tmp_path, nodes=3, node_timeout_s=8.0)
    try:
        made.switch_on()
        yield made
    finally:
        made.close()


@pytest.mark.live
@pytest.mark.faults
def test_what_is_cut_off_goes_on_or_is_started_elsewhere(wired: Wired) -> None:
    told = cut_about(wired, jobs=6, cuts=8)
    assert told.problems == []
    assert told.cuts.total() == 8


ONE = Step(1, "a", 7, 1, 0.0)


@pytest.mark.parametrize(
    ("after", "is_right"),
    [
        (Step(1, "a", 7, 2, 1.0), True),
        (Step(1, "a", 7, 3, 1.0), False),
        (Step(1, "a", 7, 1, 1.0), False),
        (Step(1, "a", 8, 2, 1.0), False),
        (Step(2, "b", 9, 1, 1.0), True),
        (Step(2, "a", 9, 1, 1.0), False),
        (Step(3, "a", 9, 1, 1.0), True),
        (Step(2, "b", 9, 2, 1.0), False),
    ],
)
def test_what_breaks_a_law_is_seen(after: Step, is_right: bool) -> None:
    assert bool(problems_of(1, [ONE, after])) is not is_right
    assert problems_of(1, [Step(2, "b", 9, 1, 0.0), ONE])
