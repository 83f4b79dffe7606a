"""Two queues by attained service: young jobs go before old ones, first come first served within each."""

from __future__ import annotations

from colane.policies.registry import preset
from tests.core.worlds import make_node

from .life import Life, job

ONE = [make_node("n0", 1)]
SHORT = preset("las", threshold_gpu_s=10.0)


def test_a_job_is_stopped_for_a_young_one_once_it_has_had_its_service() -> None:
    life = Life(SHORT, ONE, [job(0, 100, preemptible=True), job(4, 3, preemptible=True)]).run()
    assert life.spans == {1: [(0, 10), (13, 103)], 2: [(10, 13)]}


def test_young_jobs_keep_their_order_and_do_not_stop_each_other() -> None:
    life = Life(SHORT, ONE, [job(0, 8, preemptible=True), job(1, 2), job(2, 1)]).run()
    assert life.spans == {1: [(0, 8)], 2: [(8, 10)], 3: [(10, 11)]}


def test_old_jobs_come_in_order_of_arrival() -> None:
    jobs = [job(0, 30, preemptible=True), job(1, 30, preemptible=True)]
    life = Life(SHORT, ONE, jobs).run()
    assert life.spans == {1: [(0, 10), (20, 40)], 2: [(10, 20), (40, 60)]}


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


def test_an_old_job_uses_what_young_ones_leave_free() -> None:
    jobs = [job(0, 50, preemptible=True), job(1, 50, gpus=2, preemptible=True)]
    life = Life(SHORT, [make_node("n0", 2)], jobs).run()
    assert life.spans == {1: [(0, 10), (15, 55)], 2: [(10, 15), (55, 100)]}
