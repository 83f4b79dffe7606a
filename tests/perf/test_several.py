"""A job beside several others that were never measured together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from colane.model.profile import ProfileKey, SetMeasurement
from colane.perf.beliefs import Beliefs
from colane.perf.rate import Prediction
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S
from tests.core.worlds import GIB, make_profile

KIND = "P100"


def keys(families: str) -> list[ProfileKey]:
    return [ProfileKey(family, 64, 1, KIND) for family in families]


def believed(measured: Mapping[str, float], times: int = 20, sharing: str = "mps", **demands: float) -> Beliefs:
    """What is known of jobs named by letters: all they need of a GPU, if so, and slowdowns of all in sets of them."""
    profiles = [
        make_profile(family, KIND, demand * OCCUPANCY_UNITS_PER_S, GIB, step_s=1.0)
        for family, demand in demands.items()
    ]
    beliefs = Beliefs(profiles=profiles)
    for families, slowdown in measured.items():
        count = len(families)
        seen = SetMeasurement(
            keys=tuple(keys(families)), sharing=sharing, step_alone_s=(1.0,) * count,
            step_together_s=(slowdown,) * count, steps=(20,) * count, delta=1.0, delta_general=1.0, at_s=0.0,
        )  # fmt: skip
        for _ in range(times):
            beliefs.learn_set(seen)
    return beliefs


def foreseen(beliefs: Beliefs, families: str, sharing: str = "mps") -> Prediction:
    found = beliefs.predict(keys(families), sharing)
    assert found is not None
    return found


def slowdown(beliefs: Beliefs, families: str, sharing: str = "mps") -> float:
    """Of the first named."""
    return next(job.slowdown for job in foreseen(beliefs, families, sharing).jobs if job.key.family == families[0])


@pytest.mark.parametrize("sharing", ["mps", "time-slice"])
def test_one_more_adds_what_each_of_the_others_added_in_the_measured_set_not_what_pairs_cost(sharing: str) -> None:
    beliefs = believed({"aa": 1.8, "aaa": 2.1}, sharing=sharing)
    assert slowdown(beliefs, "aaaa", sharing) == pytest.approx(2.1 + 1.1 / 2, rel=0.02)


def test_alike_jobs_that_gain_more_the_more_there_are_are_foreseen_to_gain_by_one_more_at_any_number() -> None:
    speeds = {count: 1.0 + 0.106 * (count - 1) for count in range(2, 14)}
    for count in range(3, 14):
        beliefs = believed({n * "a": n / speed for n, speed in speeds.items() if n <= count}, sharing="time-slice")
        assert (count + 1) / slowdown(beliefs, (count + 1) * "a", "time-slice") > speeds[count]


def test_a_job_that_costs_more_in_a_pair_adds_more_than_those_that_were_there() -> None:
    beliefs = believed({"aa": 1.2, "ab": 2.0, "aaa": 1.4})
    light, heavy = slowdown(beliefs, "aaaa"), slowdown(beliefs, "aaab")
    assert light == pytest.approx(1.6, rel=0.05)
    assert heavy - light == pytest.approx(0.8, abs=0.25)


def test_a_set_that_does_not_hold_any_more_says_nothing_of_larger_ones() -> None:
    beliefs = believed({"aa": 1.8, "aaa": 2.1}, a=0.9)
    before = slowdown(beliefs, "aaaa")
    beliefs.forget_speed(keys("a")[0])
    beliefs.learn_profile(make_profile("a", KIND, 0.9 * OCCUPANCY_UNITS_PER_S, GIB, step_s=0.3))
    assert slowdown(beliefs, "aaaa") > before


def test_three_that_do_not_disturb_each_other_by_twos_share_the_work_of_one_gpu() -> None:
    pairs = {"ab": 1.0, "bc": 1.0, "ac": 1.0}
    assert slowdown(believed(pairs, a=0.5, b=0.5, c=0.5), "abc") == pytest.approx(1.5, rel=0.05)
    assert slowdown(believed(pairs, a=0.2, b=0.2, c=0.2), "abc") == pytest.approx(1.0, rel=0.05)
    assert slowdown(believed(pairs), "abc") == pytest.approx(1.0, rel=0.05)


def test_where_pairs_go_faster_than_their_work_bounds_them_so_do_three() -> None:
    bound = slowdown(believed({"ab": 1.6, "bc": 1.6, "ac": 1.6}, a=0.8, b=0.8, c=0.8), "abc")
    faster = slowdown(believed({"ab": 1.2, "bc": 1.2, "ac": 1.2}, a=0.8, b=0.8, c=0.8), "abc")
    assert bound == pytest.approx(2.4, rel=0.1)
    assert faster == pytest.approx(1.8, rel=0.1)


def test_what_is_added_up_from_pairs_is_less_certain_than_what_follows_from_a_measured_set() -> None:
    by_pairs, by_set = believed({"aa": 1.8}), believed({"aa": 1.8, "aaa": 2.6})
    spreads = [foreseen(beliefs, "aaaa").jobs[0].spread_ratio for beliefs in (by_set, by_pairs)]
    assert spreads == sorted(spreads, key=lambda spread: spread or 0.0)
    assert spreads[1] == pytest.approx(0.25, abs=0.1)
