"""The safety condition, by paper B's own example (section 3.3) and by exhaustion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.model.profile import Memory
from colane.model.resources import has_room_for_caches, is_safe, needed_bytes

A, B, D, F = Memory(1, 7), Memory(1, 7), Memory(1, 2), Memory(1, 1)


def test_the_example_of_capacity_12() -> None:
    assert is_safe([(0, A), (0, B)], 12)
    assert not is_safe([(0, A), (1, B)], 12)
    assert needed_bytes([(0, A), (0, B), (1, D)]) == 12
    assert not is_safe([(0, A), (0, B), (1, D), (1, F)], 12)


memories = st.builds(Memory, st.integers(0, 50), st.integers(0, 50))


@given(st.lists(st.tuples(st.integers(0, 3), memories), max_size=8))
def test_one_job_of_every_lane_can_always_proceed(members: list[tuple[int, Memory]]) -> None:
    needed = needed_bytes(members)
    held = sum(memory.persistent_bytes for _, memory in members)
    largest = {lane: max(m.ephemeral_bytes for at, m in members if at == lane) for lane, _ in members}
    assert held + sum(largest.values()) == needed
    assert is_safe(members, needed)
    assert not is_safe(members, needed - 1)


def test_caches_of_a_lane_fit_only_where_all_of_them_do() -> None:
    members = [(0, Memory(2, 5)), (0, Memory(2, 5)), (1, Memory(1, 1))]
    assert is_safe(members, 11)
    assert not has_room_for_caches(members, 15)
    assert has_room_for_caches(members, 16)
