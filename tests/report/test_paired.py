"""Differences by seed, their intervals, and fairness of a window of jobs, against values worked out by hand."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from colane.lab.report.simulated import ClusterCurves
from colane.lab.report.simulated_compared import difference_shown, paired, shown
from colane.lab.report.windowed import Measured, finish_time_rho, jain_index, measure_window

BASE = dict(enumerate([10.0, 14.0, 30.0, 22.0, 18.0]))


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    other = dict(enumerate([9.0, 12.5, 29.5, 20.0, 17.0]))
    found = paired(BASE, other)
    assert found is not None
    assert found.half_width is not None
    low, high = -1.907857, -0.492143  # scipy.stats.ttest_rel(other, BASE).confidence_interval(0.95)
    assert found.difference_mean - found.half_width == pytest.approx(low, rel=1e-3)
    assert found.difference_mean + found.half_width == pytest.approx(high, rel=1e-3)
    assert found.is_significant
    assert found.change_percent == pytest.approx(-6.383, rel=1e-3)


def test_what_seeds_do_not_agree_on_is_not_significant() -> None:
    found = paired(BASE, dict(enumerate([12.0, 12.0, 31.0, 20.0, 19.0])))
    assert found is not None
    assert not found.is_significant
    same = paired(BASE, BASE)
    assert same is not None
    assert not same.is_significant


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_have_no_interval(seeds: int) -> None:
    found = paired(dict.fromkeys(range(seeds), 10.0), {seed: 1.0 + seed / 100 for seed in range(seeds)})
    assert found is not None
    assert found.half_width is None
    assert not found.is_significant


def test_only_seeds_of_both_count() -> None:
    found = paired({0: 1.0, 1: 2.0, 2: None, 3: nan, 4: 5.0}, {1: 3.0, 2: 1.0, 3: 1.0, 4: 8.0, 5: 9.0})
    assert found is not None
    assert (found.seeds, found.difference_mean, found.base_mean) == (2, 2.0, 3.5)
    assert paired({0: 1.0}, {1: 1.0}) is None


def two_jobs() -> Measured:
    """Two jobs of 100 s on one GPU, both submitted at 0, one after the other."""
    curves = ClusterCurves(
        at_s=np.array([0.0, 100.0, 200.0]),
        active_gpus=np.array([1.0, 1.0, 0.0]),
        utilized_gpus=np.array([1.0, 0.5, 0.0]),
        stranded_gpus=np.zeros(3),
        waiting=np.array([1.0, 0.0, 0.0]),
        running=np.array([1.0, 1.0, 0.0]),
    )
    return Measured(
        place=np.arange(2),
        done=np.array([True, True]),
        submit_s=np.zeros(2),
        first_start_s=np.array([0.0, 100.0]),
        end_s=np.array([100.0, 200.0]),
        attempts=np.array([1, 2]),
        gpu_s=np.array([100.0, 100.0]),
        alone_s=np.array([100.0, 100.0]),
        gpus=np.array([1, 1]),
        slo_missed=np.array([-1, 1]),
        curves=curves,
        cluster_gpus=1,
    )


def test_rho_is_the_time_here_over_the_time_alone_on_an_equal_part() -> None:
    # Two contend for the first 100 s: 100 / (100 x 2). Then one: 200 / (100 x 1.5).
    assert finish_time_rho(two_jobs()) == pytest.approx([0.5, 4 / 3])


def test_a_window_measures_its_jobs_alone() -> None:
    found = measure_window(two_jobs(), (1, 2))
    assert (found["jobs"], found["finished"], found["restarts"], found["slo_violations"]) == (1, 1, 1, 1)
    assert (found["jct_mean_s"], found["queue_mean_s"], found["makespan_s"]) == (200.0, 100.0, 200.0)
    assert found["gpu_utilization_ratio"] == pytest.approx(0.75)
    everything = measure_window(two_jobs(), None)
    assert (everything["jobs"], everything["jct_mean_s"], everything["rho_max_ratio"]) == (2, 150.0, 4 / 3)


def test_jains_index_is_1_for_equals_and_one_nth_where_one_has_all() -> None:
    assert jain_index(np.full(7, 3.0)) == pytest.approx(1.0)
    assert jain_index(np.array([0.0, 0.0, 5.0, 0.0])) == pytest.approx(0.25)
    assert jain_index(np.array([])) is None


def test_parts_of_the_cluster_are_told_in_percent_and_their_differences_in_points() -> None:
    assert shown("gpu_active_ratio", 0.637) == "63.7 %"
    assert difference_shown("gpu_active_ratio", -0.0658) == "-6.58 points"
    assert difference_shown("rho_max_ratio", -0.0658) == "-0.0658"
    assert difference_shown("makespan_s", -120.0) == "-2 min 00 s"
