"""Listing 1 of paper E: by hand, against a plain version of itself, and its laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.scheduling.mechanisms.elastic.share_out import Throughput, envelope, share_out, variance

RESNET = envelope(enumerate([0, 2.4714, 2.8878, 3.5697, 4.037, 4.3713, 4.6175]), 6)
INCEPTION = envelope(enumerate([0, 1.6247, 2.368, 2.9595, 3.2809, 3.4223, 3.4498]), 6)
"""SPEC E.4: calibrated f(n), global batch 90."""


def four() -> dict[int, Throughput]:
    assert RESNET is not None
    assert INCEPTION is not None
    return dict(enumerate([RESNET, INCEPTION, RESNET, INCEPTION]))


@pytest.mark.parametrize("bound", [0.5, 0.25, 0.1, 0.05])
def test_a_bound_that_no_variance_reaches_changes_nothing(bound: float) -> None:
    assert share_out(four(), 6, bound) == {0: 1, 1: 2, 2: 1, 3: 2}


def test_a_bound_that_bites() -> None:
    jobs = {who: one for who, one in four().items() if who < 3}
    assert share_out(jobs, 6, 0.05) == {0: 2, 1: 3, 2: 1}
    assert share_out(jobs, 6, 0.02) == {0: 3, 1: 2, 2: 1}, "SPEC E.2: results change at 0.02"


def test_a_job_whose_smallest_size_does_not_fit_is_passed_over() -> None:
    large, small = Throughput((4,), (1.0,)), Throughput((1, 2), (1.0, 1.5))
    assert share_out({0: large, 1: small}, 3, 1.0) == {1: 2}
    assert share_out({0: large}, 3, 1.0) == {}


def test_gpus_that_make_a_job_no_faster_stay_free() -> None:
    assert envelope([(1, 1.0), (2, 0.9), (3, 1.0), (4, 1.2)], 8) == Throughput((1, 4), (1.0, 1.2))
    assert envelope([(1, 0.0), (2, 3.0)], 8) == Throughput((2,), (3.0,)), "it cannot run on one"
    assert envelope([(4, 1.0)], 3) is None
    only = Throughput((1,), (1.0,))
    assert share_out({0: only}, 8, 1.0) == {0: 1}


def test_a_job_that_may_not_be_changed_counts_in_the_variance() -> None:
    """Beside a slow protected job, no job grows further from it than needed: the least variance is taken."""
    one, other = Throughput((1, 2), (1.0, 4.0)), Throughput((1, 2), (1.0, 2.0))
    assert share_out({0: one, 1: other}, 3, 1.0) == {0: 2, 1: 1}
    assert share_out({0: one, 1: other}, 3, 0.0, (0.25,) * 9) == {0: 1, 1: 2}


def plain(jobs: dict[int, Throughput], gpus: int, bound: float, fixed: list[float]) -> dict[int, int]:
    """The listing as it reads: every candidate's variance from scratch."""
    at: dict[int, int] = {}
    for who, one in jobs.items():
        if one.gpus[0] <= gpus:
            at[who], gpus = 0, gpus - one.gpus[0]

    def speeds(places: dict[int, int]) -> list[float]:
        own = [jobs[who].steps_per_s[place] / jobs[who].steps_per_s[-1] for who, place in places.items()]
        return [*own, *fixed]

    while True:
        steps = []
        for who, place in at.items():
            one = jobs[who]
            cost = one.gpus[place + 1] - one.gpus[place] if place + 1 < len(one.gpus) else math.inf
            if cost <= gpus:
                gain = one.weight * (one.steps_per_s[place + 1] - one.steps_per_s[place]) / cost
                steps.append((who, cost, gain, variance(speeds({**at, who: place + 1}))))
        if not steps:
            return {who: jobs[who].gpus[place] for who, place in at.items()}
        fair = [step for step in steps if step[3] < bound]
        best = max(fair, key=lambda s: s[2]) if fair else min(steps, key=lambda s: s[3])
        at[best[0]] += 1
        gpus -= int(best[1])


CURVES = st.builds(
    lambda alone, power, sizes: envelope([(n, alone * n**power) for n in sorted(sizes)], 8),
    st.floats(0.1, 10), st.floats(0.2, 1.0), st.sets(st.integers(1, 8), min_size=1),
)  # fmt: skip


@given(st.lists(CURVES, max_size=6), st.integers(0, 24), st.sampled_from([0.5, 0.05, 0.01, 0.0]), st.booleans())
def test_it_decides_as_the_plain_listing(
    curves: list[Throughput | None], gpus: int, bound: float, has_fixed: bool
) -> None:
    jobs = {who: one for who, one in enumerate(curves) if one is not None}
    fixed = [0.3, 0.9] if has_fixed else []
    ours, other = share_out(jobs, gpus, bound, fixed), plain(jobs, gpus, bound, fixed)
    total = sum(ours.values())
    assert total <= gpus
    assert ours.keys() == other.keys()
    assert all(count in jobs[who].gpus for who, count in ours.items())
    assert _value(jobs, ours) == pytest.approx(_value(jobs, other), rel=1e-6) or ours == other


def _value(jobs: dict[int, Throughput], sizes: dict[int, int]) -> float:
    return sum(jobs[who].steps_per_s[jobs[who].gpus.index(count)] for who, count in sizes.items())


@given(st.lists(CURVES, min_size=1, max_size=6), st.integers(1, 24))
def test_no_gpu_is_left_that_would_make_a_job_faster(curves: list[Throughput | None], gpus: int) -> None:
    jobs = {who: one for who, one in enumerate(curves) if one is not None}
    given_out = share_out(jobs, gpus, 0.25 + 1e-9)
    left = gpus - sum(given_out.values())
    for who, count in given_out.items():
        larger = [size for size in jobs[who].gpus if size > count]
        assert not larger or larger[0] - count > left
