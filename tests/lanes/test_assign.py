"""Paper B's algorithm 1 as corrected: the worked example, every step of it, and its laws on random lives of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.lanes.assign import (
    MIB,
    How,
    LaneMember,
    LaneSpot,
    Layout,
    MemoryRelief,
    SalusRule,
    admit,
    find,
    find_single,
    outgrown,
    place,
    remove,
    resize,
    salus_find,
    squeeze,
)
from colane.model.profile import Memory
from tests.examples import examples

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
PLAIN = SalusRule(1.0, 1.0, 0)


def filled(capacity: int, *jobs: tuple[int, int, int]) -> Layout:
    """Jobs as (lane, P, E), numbered from 1."""
    layout = Layout(capacity)
    for number, (lane, persistent, ephemeral) in enumerate(jobs, 1):
        layout = place(layout, number, Memory(persistent, ephemeral), lane)
    return layout


def test_the_worked_example_of_twelve_gigabytes() -> None:
    """A(1,7) opens a lane of 7; B(1,7) joins it; D(1,2) opens a second; F(1,1) waits."""
    needs = {1: Memory(1, 7), 2: Memory(1, 7), 3: Memory(1, 2), 4: Memory(1, 1)}
    layout, placed = admit(Layout(12), needs.items())
    assert placed == ((1, LaneSpot(How.NEW, 0, 7)), (2, LaneSpot(How.JOIN, 0, 7)), (3, LaneSpot(How.NEW, 1, 2)))
    assert layout.sizes_bytes == {0: 7, 1: 2}
    assert layout.needed_bytes == 12
    assert find(layout, needs[4]) is None


def test_two_progressive_jobs_never_hold_half_of_each_others_memory() -> None:
    """Two lanes of 7 on 12 could deadlock; the second job takes turns in the first one's lane instead."""
    layout = filled(12, (0, 1, 7))
    assert find(layout, Memory(1, 7)) == LaneSpot(How.JOIN, 0, 7)
    assert find(layout, Memory(5, 7)) is None


def test_a_job_joins_only_if_its_own_p_fits() -> None:
    """The printed algorithm forgets this check in its second step."""
    layout = filled(12, (0, 2, 7))
    assert find(layout, Memory(3, 5)) == LaneSpot(How.JOIN, 0, 7)
    assert find(layout, Memory(4, 5)) is None


def test_the_smallest_lane_that_is_large_enough_is_joined_then_the_emptiest() -> None:
    layout = filled(20, (0, 0, 8), (1, 0, 5), (2, 0, 5), (1, 0, 1))
    assert find(layout, Memory(0, 4)) == LaneSpot(How.JOIN, 2, 5)


def test_a_lane_grows_but_never_below_a_member() -> None:
    """As printed, a lane is set to the newcomer's E, which may shrink it below a member's."""
    layout = filled(20, (0, 0, 10), (1, 0, 3))
    assert find(layout, Memory(2, 12)) == LaneSpot(How.GROW, 0, 12)
    grown = place(layout, 3, Memory(2, 12), 0)
    assert grown.sizes_bytes == {0: 12, 1: 3}
    assert find(filled(12, (0, 1, 4)), Memory(2, 9)) == LaneSpot(How.GROW, 0, 9)


def test_a_lane_shrinks_to_the_largest_of_the_rest_and_an_empty_one_is_gone() -> None:
    layout = filled(30, (0, 1, 9), (0, 1, 4), (1, 1, 6))
    assert remove(layout, 1).sizes_bytes == {0: 4, 1: 6}
    assert remove(layout, 3).sizes_bytes == {0: 9}


def test_an_end_lets_the_queue_in_though_the_lane_stays() -> None:
    layout = filled(12, (0, 4, 7), (0, 1, 7))
    waiting = [(3, Memory(3, 7))]
    assert admit(layout, waiting)[1] == ()
    assert admit(remove(layout, 1), waiting)[1] == ((3, LaneSpot(How.JOIN, 0, 7)),)


def test_all_take_turns_in_the_single_lane() -> None:
    assert find_single(Layout(12), Memory(5, 8)) is None
    assert find_single(Layout(12), Memory(5, 7)) == LaneSpot(How.NEW, 0, 7)
    assert find_single(filled(12, (0, 1, 5)), Memory(1, 3)) == LaneSpot(How.JOIN, 0, 5)
    assert find_single(filled(12, (0, 1, 5)), Memory(1, 10)) == LaneSpot(How.GROW, 0, 10)
    assert find_single(filled(12, (0, 1, 5)), Memory(2, 10)) is None
    assert find_single(filled(12, (0, 7, 5)), Memory(1, 3)) is None


def test_the_youngest_of_those_that_outgrew_the_gpu_goes() -> None:
    layout = filled(12, (0, 1, 4), (1, 1, 2), (1, 1, 2))
    assert outgrown(layout) == ()
    assert outgrown(resize(layout, 1, Memory(1, 8))) == (3,)
    assert outgrown(resize(layout, 1, Memory(1, 9))) == (2, 3)
    assert outgrown(resize(layout, 1, Memory(9, 9))) == (2, 3), "alone it may try, whatever it needs"


def test_the_released_code_opens_a_lane_of_p_and_e_with_its_safety_factors() -> None:
    rule, capacity = SalusRule(), 16384 * MIB
    memory = Memory(1000 * MIB, 4000 * MIB)
    spot = salus_find(Layout(capacity), memory, rule)
    assert spot == LaneSpot(How.NEW, 0, int((1100 + 4000) * 1.05 * MIB))
    whole = salus_find(Layout(capacity), Memory(10_000 * MIB, 6000 * MIB), rule)
    assert whole is not None
    assert whole.size_bytes == capacity - 300 * MIB, "a limit is capped at what there is"


def test_the_released_code_lets_a_job_into_a_lane_it_fits_and_never_grows_one() -> None:
    layout = filled(12, (0, 4, 6))
    assert salus_find(layout, Memory(1, 5), PLAIN) is None, "4 + 1 + 6 do not fit into 10"
    small = filled(12, (0, 1, 9), (1, 1, 1))
    assert salus_find(small, Memory(0, 6), PLAIN) == LaneSpot(How.JOIN, 0, 10)
    assert salus_find(small, Memory(0, 11), PLAIN) is None


def test_a_lane_of_the_released_code_holds_what_came_to_it_from_another_lane() -> None:
    """Three jobs of P 3 and E 1 that `squeeze` put together need 10 of 12, though the first alone needs 4."""
    crowded = Layout(
        12, (LaneMember(1, 0, Memory(3, 1)), LaneMember(2, 0, Memory(3, 1)), LaneMember(3, 0, Memory(3, 1)))
    )
    assert salus_find(crowded, Memory(1, 1), PLAIN) == LaneSpot(How.NEW, 1, 2)
    assert salus_find(crowded, Memory(2, 1), PLAIN) is None


class Gpu:
    """Random arrivals, ends, kills and growth on one GPU, as the algorithm is to be used."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.layout = Layout(self.random.randint(8, 64))
        self.queue: dict[int, Memory] = {}
        self.next = 1
        self.lanes: dict[int, int] = {}

    def happen(self) -> None:
        event = self.random.choice((self.arrive, self.arrive, self.end, self.grow))
        event()
        self.layout, placed = admit(self.layout, self.queue.items())
        for job, spot in placed:
            del self.queue[job]
            self.lanes[job] = spot.lane

    def arrive(self) -> None:
        memory = Memory(self.random.randint(0, 9), self.random.randint(0, 20))
        if sum(memory) <= self.layout.capacity_bytes:
            self.queue[self.next] = memory
        self.next += 1

    def end(self) -> None:
        if self.layout.members:
            self.layout = remove(self.layout, self.random.choice(self.layout.members).job)

    def grow(self) -> None:
        """A member turns out to need more; who does not fit any more is queued again with what it needs."""
        if not self.layout.members:
            return
        job, _, (persistent, ephemeral) = self.random.choice(self.layout.members)
        more = Memory(persistent + self.random.randint(0, 3), ephemeral + self.random.randint(0, 5))
        if sum(more) > self.layout.capacity_bytes:
            self.layout = remove(self.layout, job)
            return
        self.layout = resize(self.layout, job, more)
        needs = {one.job: one.memory for one in self.layout.members}
        for gone in outgrown(self.layout):
            self.layout = remove(self.layout, gone)
            self.queue[gone] = needs[gone]


@examples(150)
@given(seed=SEEDS)
def test_the_condition_never_breaks_and_no_job_waits_that_could_run(seed: int) -> None:
    gpu = Gpu(seed)
    for _ in range(60):
        gpu.happen()
        layout = gpu.layout
        assert layout.left_bytes >= 0
        for job, lane, memory in layout.members:
            assert layout.sizes_bytes[lane] >= memory.ephemeral_bytes
            assert gpu.lanes[job] == lane, "none is moved to another lane"
        assert all(could_not_run(layout, memory) for memory in gpu.queue.values())


def could_not_run(layout: Layout, memory: Memory) -> bool:
    """Tried by hand: in every lane there is, and in one more."""
    lanes = {*layout.sizes_bytes, layout.next_lane}
    return all(place(layout, 0, memory, lane).left_bytes < 0 for lane in lanes)


@examples(100)
@given(seed=SEEDS)
def test_the_single_lane_keeps_the_condition_too(seed: int) -> None:
    random, layout = Random(seed), Layout(40)
    for job in range(40):
        memory = Memory(random.randint(0, 9), random.randint(0, 20))
        spot = find_single(layout, memory)
        assert (spot is None) == (place(layout, job, memory, 0).left_bytes < 0)
        layout = layout if spot is None else place(layout, job, memory, spot.lane)
        assert set(layout.sizes_bytes) <= {0}
        if layout.members and random.random() < 0.4:
            layout = remove(layout, random.choice(layout.members).job)


@examples(100)
@given(seed=SEEDS)
def test_the_released_codes_lanes_are_safe(seed: int) -> None:
    random, layout = Random(seed), Layout(60)
    for job in range(40):
        memory = Memory(random.randint(0, 9), random.randint(0, 20))
        spot = salus_find(layout, memory, PLAIN)
        if spot is not None:
            layout = place(layout, job, memory, spot.lane)
        assert layout.left_bytes >= 0
        if layout.members and random.random() < 0.4:
            layout = remove(layout, random.choice(layout.members).job)


@pytest.mark.parametrize("capacity", [0, 5])
def test_an_empty_gpu_refuses_only_what_does_not_fit(capacity: int) -> None:
    assert find(Layout(capacity), Memory(3, 3)) is None
    assert find(Layout(capacity), Memory(0, capacity)) == LaneSpot(How.NEW, 0, capacity)


def test_a_job_that_does_not_fit_beside_the_others_takes_turns_if_it_may() -> None:
    layout = Layout(
        12, (LaneMember(1, 0, Memory(1, 5)), LaneMember(2, 1, Memory(1, 5)), LaneMember(3, 2, Memory(1, 4)))
    )
    assert squeeze(layout, lambda *_: False) == MemoryRelief((), (3,))
    tight = layout._replace(capacity_bytes=11)
    asked: list[tuple[int, Sequence[int]]] = []

    def may_meet(job: int, members: Sequence[int]) -> bool:
        asked.append((job, members))
        return True

    assert squeeze(tight, may_meet) == MemoryRelief(((2, 0), (3, 0)), ())
    assert asked == [(2, [1]), (3, [1, 2])]


@given(members=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 9)), max_size=6))
def test_what_is_squeezed_is_safe(members: list[tuple[int, int, int]]) -> None:
    layout = Layout(14, tuple(LaneMember(k, lane, Memory(p, e)) for k, (lane, p, e) in enumerate(members)))
    moves, gone = squeeze(layout, lambda *_: True)
    lanes = dict(moves)
    kept = [one._replace(lane=lanes.get(one.job, one.lane)) for one in layout.members if one.job not in gone]
    assert Layout(14, tuple(kept)).left_bytes >= 0 or len(kept) == 1
