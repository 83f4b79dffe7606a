"""Finish-time fairness: who is worst off against his own part of the cluster goes first."""

from __future__ import annotations

import pytest

from colane.scheduling.registry import preset
from tests.core.worlds import make_node

from .life import Life, job, known, step_time

SHORT_LEASE = preset("finish-time-fair", lease_s=10.0)
ONE = [make_node("n0", 1)]
STEP = [step_time(1.0), step_time(1.0, gpus=2)]


def rho(life: Life, number: int, jobs: int, gpus: int = 1) -> float:
    """Finish time over that on 1/N of the GPUs."""
    coming = life.jobs[number - 1]
    return (life.spans[number][-1][1] - coming.at_s) / (coming.run_s * max(1, coming.spec.gpus * jobs / gpus))


def test_the_shorter_of_two_has_waited_longer_for_its_size_and_goes_first() -> None:
    life = Life(SHORT_LEASE, ONE, [job(0, 20, steps_total=20), known(1, 100), known(1, 10)], STEP).run()
    assert life.order == [1, 3, 2]


def test_a_running_job_gives_way_after_its_lease_to_one_that_is_worse_off() -> None:
    life = Life(SHORT_LEASE, ONE, [known(0, 200), known(5, 20)], STEP).run()
    first_stop_s = life.spans[1][0][1]
    assert first_stop_s >= 10
    assert life.starts(2)[0] == first_stop_s < 200
    assert life.spans[2][-1][1] <= 60


def test_no_job_is_stopped_within_its_lease() -> None:
    life = Life(SHORT_LEASE, ONE, [known(0, 60), known(1, 60), known(2, 60)], STEP).run()
    lengths = [end_s - start_s for spans in life.spans.values() for start_s, end_s in spans[:-1]]
    assert lengths
    assert min(lengths) >= 10


def test_alike_jobs_end_about_equally_fairly() -> None:
    life = Life(SHORT_LEASE, [make_node("n0", 2)], [known(0, 300) for _ in range(6)], STEP).run()
    rhos = [rho(life, number, 6, gpus=2) for number in range(1, 7)]
    assert max(rhos) == pytest.approx(1.0, abs=0.1)
    assert min(rhos) > 0.8


def test_the_worst_rho_is_lower_than_in_order_of_arrival() -> None:

    jobs = [known(0, 500), *[known(10, 40) for _ in range(4)]]
    fair, fifo = (Life(policy, ONE, list(jobs), STEP).run() for policy in (SHORT_LEASE, preset("fifo-skip")))
    worst = [max(rho(life, number, 5) for number in life.spans) for life in (fair, fifo)]
    assert worst[0] < 0.7 * worst[1]


def test_what_cannot_be_stopped_is_waited_for() -> None:
    life = Life(SHORT_LEASE, ONE, [job(0, 100), known(1, 10)], STEP).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 110)]}


def test_lengths_need_not_be_known() -> None:
    jobs = [job(0, 200, preemptible=True), job(1, 200, preemptible=True)]
    life = Life(SHORT_LEASE, ONE, jobs).run()
    assert len(life.spans[1]) > 2, "they take turns"
    assert abs(life.spans[1][-1][1] - life.spans[2][-1][1]) < 60
