"""The lower bound that policies are held against: below what any schedule reaches, and near it where all is known."""

from __future__ import annotations

import pytest
from benchmarks.policy_bound import bound, ways
from benchmarks.policy_greedy import greedy
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples


def together(_one: int, _other: int) -> tuple[float, float]:
    return 0.8, 0.7


def apart(_one: int, _other: int) -> tuple[float, float]:
    return 0.0, 0.0


def test_jobs_that_cannot_share_need_their_own_time_on_the_gpus() -> None:
    found = bound([0.0] * 4, [10.0] * 4, "abcd", apart, 2)
    assert found.end_s == pytest.approx(20.0)
    assert 12.0 <= found.mean_jct_s <= 15.0


def test_of_jobs_that_share_all_gpus_do_the_work_of_two() -> None:
    assert bound([0.0] * 4, [10.0] * 4, "aaaa", together, 1).end_s == pytest.approx(40.0 / 1.5)


def test_one_that_comes_later_ends_no_sooner_than_it_can() -> None:
    found = bound([0.0, 100.0], [10.0, 30.0], "ab", together, 4)
    assert found.end_s == 130.0
    assert found.mean_jct_s == pytest.approx(20.0)


def test_where_sharing_gains_nothing_there_is_no_way_for_it() -> None:
    assert ways("ab", apart).speeds.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@examples(15)
@given(
    jobs=st.lists(st.tuples(st.floats(0.0, 500.0), st.floats(1.0, 400.0)), min_size=1, max_size=12),
    gpus=st.integers(1, 3),
    order=st.sampled_from(["shortest", "longest", "arrival", "shadow-price"]),
)
def test_no_schedule_is_below_it(jobs: list[tuple[float, float]], gpus: int, order: str) -> None:
    submit_s, alone_s = map(list, zip(*sorted(jobs), strict=True))
    ends_s = greedy(submit_s, alone_s, together, gpus, order)
    found = bound(submit_s, alone_s, "a" * len(jobs), together, gpus)
    mean_s = sum(end - came for end, came in zip(ends_s, submit_s, strict=True)) / len(jobs)
    assert found.mean_jct_s <= mean_s * (1 + 1e-6) + 1e-6
    assert found.end_s <= max(ends_s) * (1 + 1e-6) + 1e-6
