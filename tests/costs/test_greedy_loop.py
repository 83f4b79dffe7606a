"""The bare loop that policies are held against: what its search for the least mean jct decides."""

from __future__ import annotations

import pytest
from benchmarks.policy_greedy import ORDERS, greedy, shadow_price


def test_a_second_of_work_is_worth_one_and_what_it_saves_those_behind() -> None:
    assert [shadow_price(behind, 4) for behind in (0, 2, 4, 12)] == [1.0, 1.0, 1.5, 3.5]


def apart(_host: int, _job: int) -> tuple[float, float]:
    """Speeds of jobs that do not fit beside each other."""
    return 0.0, 0.0


@pytest.mark.parametrize("order", ORDERS)
def test_with_no_sharing_jobs_run_one_after_another(order: str) -> None:
    ends = greedy([0.0, 0.0], [10.0, 30.0], apart, 1, order)
    assert sorted(ends) == ([30.0, 40.0] if order == "longest" else [10.0, 40.0])


def test_a_short_job_is_not_slowed_for_a_long_one_while_others_wait() -> None:
    """Speeds add up to 1.1 together, but two more wait for the short one, whose speed it would cost."""
    alone_s = [10.0, 100.0, 100.0, 100.0]

    def speeds(host: int, _job: int) -> tuple[float, float]:
        return (0.3, 0.8) if host == 0 else (0.0, 0.0)

    assert greedy([0.0] * 4, alone_s, speeds, 1, "shadow-price")[0] == 10.0
    assert greedy([0.0] * 4, alone_s, speeds, 1, "shortest")[0] > 30.0


def test_the_pairs_worth_most_come_first() -> None:
    """Job 2 may join either; job 3 only job 1, where it gains more than job 2 would."""

    def speeds(host: int, job: int) -> tuple[float, float]:
        return {(0, 2): (0.9, 0.6), (1, 2): (1.0, 0.6), (1, 3): (1.0, 1.0)}.get((host, job), (0.0, 0.0))

    ends = greedy([0.0] * 4, [50.0, 60.0, 70.0, 80.0], speeds, 2, "shadow-price")
    assert ends[3] == pytest.approx(80.0)
