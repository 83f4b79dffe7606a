"""Two queues by attained service: young jobs go before old ones, first come first served within each."""

from __future__ import annotations

import pytest

from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.scheduling.registry import create, preset
from tests.core.worlds import make_node
from tests.simulate import scenes

from .life import Life, job

ONE = [make_node("n0", 1)]
SHORT = preset("las", queues_gpu_s=(10.0,))


def test_a_job_is_stopped_for_a_young_one_once_it_has_had_its_service() -> None:
    life = Life(SHORT, ONE, [job(0, 100, preemptible=True), job(4, 3, preemptible=True)]).run()
    assert life.spans == {1: [(0, 10), (13, 103)], 2: [(10, 13)]}


def test_young_jobs_keep_their_order_and_do_not_stop_each_other() -> None:
    life = Life(SHORT, ONE, [job(0, 8, preemptible=True), job(1, 2), job(2, 1)]).run()
    assert life.spans == {1: [(0, 8)], 2: [(8, 10)], 3: [(10, 11)]}


def test_an_old_job_waits_for_the_old_one_that_runs() -> None:
    jobs = [job(0, 30, preemptible=True), job(1, 30, preemptible=True)]
    life = Life(SHORT, ONE, jobs).run()
    assert life.spans == {1: [(0, 10), (40, 60)], 2: [(10, 40)]}


def test_old_jobs_that_wait_come_in_order_of_arrival() -> None:
    jobs = [job(at, 30, preemptible=True) for at in range(3)]
    life = Life(SHORT, ONE, jobs).run()
    assert life.spans == {1: [(0, 10), (50, 70)], 2: [(10, 20), (70, 90)], 3: [(20, 50)]}


def test_there_may_be_more_queues() -> None:
    three = create("las:queues_gpu_s=10/20")
    life = Life(three, ONE, [job(0, 30, preemptible=True), job(0, 30, preemptible=True)]).run()
    assert life.spans == {1: [(0, 10), (30, 50)], 2: [(10, 30), (50, 60)]}


def test_service_counts_gpus() -> None:
    jobs = [job(0, 100, gpus=2, preemptible=True), job(1, 1, gpus=2)]
    life = Life(SHORT, [make_node("n0", 2)], jobs).run()
    assert life.spans[1] == [(0, 5), (6, 101)]


def test_service_is_remembered_over_a_stop() -> None:
    jobs = [job(0, 100, preemptible=True), job(4, 3), job(20, 1)]
    life = Life(SHORT, ONE, jobs).run()
    assert life.spans[1] == [(0, 10), (13, 20), (21, 104)]


def test_what_cannot_be_stopped_is_waited_for() -> None:
    life = Life(SHORT, ONE, [job(0, 100), job(4, 3)]).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 103)]}


def test_of_the_old_jobs_the_last_to_come_gives_way_and_returns() -> None:
    jobs = [job(0, 50, preemptible=True), job(0, 50, preemptible=True), job(12, 5, preemptible=True)]
    life = Life(SHORT, [make_node("n0", 2)], jobs).run()
    assert life.spans == {1: [(0, 50)], 2: [(0, 12), (17, 55)], 3: [(12, 17)]}


def test_a_job_stopped_as_it_leaves_its_queue_has_left_it_however_its_times_round() -> None:
    assert (6.4 + 10) - 6.4 < 10, "the time it has run, by the clock, is a little less than its service"
    inputs = Inputs(
        cluster=scenes.cluster(1), workload=scenes.workload(scenes.job(1, 6.4, 100.0), scenes.job(2, 10.4, 3.0)),
        world=NeutralWorld(), policy=create("las:queues_gpu_s=10"),
    )  # fmt: skip
    rows = simulate(inputs).ledger.rows
    assert dict(zip(rows.id, rows.end_s, strict=True)) == pytest.approx({1: 109.4, 2: 19.4})
