"""Shortest job first, by what is believed."""

from __future__ import annotations

from colane.scheduling.registry import preset
from tests.core.worlds import make_node

from .life import Life, job, step_time


def test_the_shortest_goes_first_by_steps_times_step_time() -> None:
    jobs = [job(0, 10, steps_total=10), job(1, 9, steps_total=9), job(2, 2, steps_total=2), job(3, 5, steps_total=5)]
    life = Life(preset("sjf"), [make_node("n0", 1)], jobs, [step_time(1.0)]).run()
    assert life.order == [1, 3, 4, 2]
    assert life.starts(2) == [17]


def test_a_wrong_belief_gives_the_wrong_order() -> None:
    jobs = [job(0, 1), job(0.5, 2, steps_total=2, family="slow"), job(0.5, 9, steps_total=9)]
    life = Life(preset("sjf"), [make_node("n0", 1)], jobs, [step_time(0.1), step_time(1, family="slow")]).run()
    assert life.order == [1, 3, 2]


def test_without_a_step_time_the_time_limit_counts_and_without_both_a_job_comes_last() -> None:
    jobs = [job(0, 1), job(0.5, 1), job(0.5, 1, time_limit_s=8), job(0.5, 1, time_limit_s=4, steps_total=99)]
    life = Life(preset("sjf"), [make_node("n0", 1)], jobs).run()
    assert life.order == [1, 4, 3, 2]


def test_a_time_limit_bounds_what_is_predicted() -> None:
    jobs = [job(0, 1), job(0.5, 5, steps_total=5), job(0.5, 3, steps_total=900, time_limit_s=4)]
    life = Life(preset("sjf"), [make_node("n0", 1)], jobs, [step_time(1.0)]).run()
    assert life.order == [1, 3, 2]


def test_one_that_does_not_fit_is_passed_and_priority_comes_before_length() -> None:
    jobs = [job(0, 4, time_limit_s=4), job(1, 1, time_limit_s=1, gpus=2), job(1, 2, time_limit_s=2)]
    life = Life(preset("sjf"), [make_node("n0", 2)], jobs).run()
    assert life.spans == {1: [(0, 4)], 2: [(4, 5)], 3: [(1, 3)]}
    jobs = [job(0, 4), job(1, 1, time_limit_s=1), job(1, 9, time_limit_s=9, priority=1)]
    assert Life(preset("sjf"), [make_node("n0", 1)], jobs).run().order == [1, 3, 2]


def test_it_minimises_the_mean_completion_time_of_a_batch() -> None:
    runs = [7, 3, 11, 2, 5, 13, 1]
    jobs = [job(0, run, steps_total=run) for run in runs]
    life = Life(preset("sjf"), [make_node("n0", 1)], jobs, [step_time(1.0)]).run()
    ends = sorted(spans[-1][1] for spans in life.spans.values())
    assert ends == [sum(sorted(runs)[: k + 1]) for k in range(len(runs))]
