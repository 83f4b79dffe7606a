"""When jobs without GPUs are held back, and when they are let go: the rule alone (paper D, section V-D)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from colane.cpu.contention import Change, Consumer, ContentionConfig, Look, NodeWatch

CONFIG = ContentionConfig()
SHORT, CALM = 0.9, 0.3


class Node:
    """Consumers that obey, on a node that is looked at every interval."""

    def __init__(self, *consumers: Consumer) -> None:
        self.watch = NodeWatch(CONFIG)
        self.consumers = {one.job: one for one in consumers}
        self.now_s = 0.0

    def look(
        self, used_ratio: float, *, slowed: bool, trains: bool = True, can_limit: bool = False, times: int = 1
    ) -> list[Change]:
        found: list[Change] = []
        for _ in range(times):
            self.now_s += CONFIG.interval_s
            look = Look(self.now_s, used_ratio, trains, slowed, can_limit)
            for change in self.watch.judge(look, list(self.consumers.values())):
                one = self.consumers[change.job]
                now = one._replace(cores=change.cores, bandwidth_ratio=change.bandwidth_ratio)
                self.consumers[change.job] = now
                found.append(change)
        return found


def node() -> Node:
    return Node(Consumer(1, 0.2, 8, 8), Consumer(2, 0.6, 16, 16), Consumer(3, 0.01, 4, 4))


@pytest.mark.parametrize(("used", "slowed"), [(SHORT, False), (0.74, True), (CALM, True)])
def test_no_job_is_held_back_unless_bandwidth_is_short_and_a_training_job_is_slowed(used: float, slowed: bool) -> None:
    assert node().look(used, slowed=slowed, times=50) == []


def test_the_largest_consumer_has_its_cores_halved_each_interval_down_to_one_then_the_next() -> None:
    changes = node().look(SHORT, slowed=True, times=20)
    assert [(one.job, one.cores) for one in changes] == [
        *[(2, cores) for cores in (8, 4, 2, 1)],
        *[(1, cores) for cores in (4, 2, 1)],
    ]
    assert {one.bandwidth_ratio for one in changes} == {1.0}


def test_where_bandwidth_can_be_bounded_cores_stay_and_the_bound_halves_to_a_tenth() -> None:
    changes = node().look(SHORT, slowed=True, can_limit=True, times=4)
    assert [(one.job, one.cores, one.bandwidth_ratio) for one in changes] == [
        (2, 16, 0.5), (2, 16, 0.25), (2, 16, 0.125), (2, 16, 0.1)
    ]  # fmt: skip


def test_looks_within_one_interval_change_one_thing() -> None:
    busy = node()
    assert len(busy.look(SHORT, slowed=True)) == 1
    again = Look(busy.now_s + 1, SHORT, trains=True, is_slowed=True)
    assert busy.watch.judge(again, list(busy.consumers.values())) == []


def test_it_is_let_go_step_by_step_after_a_minute_well_below_the_threshold_and_not_between_the_two() -> None:
    busy = node()
    busy.look(SHORT, slowed=True, times=2)
    assert busy.look(0.7, slowed=False, times=30) == []
    assert busy.look(CALM, slowed=False, times=6) == []
    assert [one.cores for one in busy.look(CALM, slowed=False)] == [8]
    assert busy.look(CALM, slowed=False, times=5) == []
    assert [one.cores for one in busy.look(CALM, slowed=False)] == [16]
    assert busy.look(CALM, slowed=False, times=30) == []


def test_a_job_that_is_held_back_again_and_again_waits_twice_as_long_each_time_but_not_for_ever() -> None:
    busy = Node(Consumer(2, 0.6, 2, 2))
    waits = []
    for _ in range(7):
        assert len(busy.look(SHORT, slowed=True)) == 1
        began_s = busy.now_s
        while not busy.look(CALM, slowed=False):
            assert busy.now_s < 1e5
        waits.append(busy.now_s - began_s - CONFIG.interval_s)
    assert waits == [60, 120, 240, 480, 960, 960, 960]


def test_all_are_let_go_whole_and_at_once_when_no_job_trains_there_any_more() -> None:
    busy = node()
    busy.look(SHORT, slowed=True, times=5)
    assert busy.look(SHORT, slowed=False, trains=False) == [Change(1, 8, 1.0), Change(2, 16, 1.0)]
    assert busy.look(SHORT, slowed=False, trains=False, times=5) == []


def jobs(changes: Iterable[Change]) -> set[int]:
    return {one.job for one in changes}


def test_a_job_that_uses_next_to_nothing_is_left_alone() -> None:
    assert jobs(node().look(SHORT, slowed=True, times=100)) == {1, 2}
