"""FIFO with skip: whoever fits passes whoever does not."""

from __future__ import annotations

from colane.scheduling.registry import preset
from tests.core.worlds import make_node

from .life import Life, job


def test_small_jobs_pass_a_large_one_in_their_order() -> None:
    life = Life(
        preset("fifo-skip"), [make_node("n0", 4)], [job(0, 10, gpus=3), job(1, 5, gpus=4), job(2, 3), job(3, 4)]
    ).run()
    assert life.spans == {1: [(0, 10)], 2: [(10, 15)], 3: [(2, 5)], 4: [(5, 9)]}


def test_a_higher_priority_goes_first() -> None:
    life = Life(preset("fifo-skip"), [make_node("n0", 1)], [job(0, 5), job(1, 1), job(2, 1, priority=1)]).run()
    assert life.order == [1, 3, 2]


def test_a_stream_of_small_jobs_keeps_a_large_one_waiting() -> None:
    small = [job(k, 2) for k in range(6)]
    life = Life(preset("fifo-skip"), [make_node("n0", 2)], [job(0, 1), job(0.5, 1, gpus=2), *small]).run()
    assert life.starts(2) == [7]
