"""The index of GPUs that may be joined: always what a look at every GPU would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.view import ClusterView
from colane.lanes.assign import How, find
from colane.model.hardware import GpuId
from colane.model.profile import Memory
from colane.scheduling.mechanisms.lanes.in_lane import layout_of
from colane.scheduling.mechanisms.lanes.joinable import Candidates, FullestFirst, JoinableGpu, LaneIndex, entry_of
from colane.scheduling.registry import preset
from tests.core.worlds import GIB, World
from tests.examples import examples

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


@examples(25)
@given(seed=SEEDS, index=st.sampled_from([LaneIndex, FullestFirst]))
def test_it_is_true_after_every_event(seed: int, index: type[LaneIndex]) -> None:
    world = World(preset("pack"), seed)
    state = world.core.state
    for _ in range(40):
        world.step(world.random_event())
        view = ClusterView(state, world.now_s)
        for kind in state.free:
            loads = [load for load in state.gpus.values() if state.kind_of(load) == kind and load.is_joinable_by_gangs]
            for left_bytes in (0, 2 * GIB):
                expected = [entry_of(load, index.sign) for load in loads if load.left_bytes >= left_bytes]
                assert sorted(view.derived(index).entries(view, kind, left_bytes)) == sorted(expected)


@examples(25)
@given(seed=SEEDS, persistent=st.integers(0, 8), ephemeral=st.integers(0, 8))
def test_two_numbers_of_a_gpu_tell_whether_it_has_room(seed: int, persistent: int, ephemeral: int) -> None:
    world = World(preset("pack"), seed)
    memory = Memory(persistent * GIB, ephemeral * GIB)
    for _ in range(30):
        world.step(world.random_event())
        for load in (each for each in world.core.state.gpus.values() if each.is_joinable):
            spot, entry = find(layout_of(load), memory), entry_of(load, 1)
            assert entry.has_room_in_lane(memory) == (spot is not None)
            assert entry.has_room_for_lane(memory) == (spot is not None and spot.how is How.NEW)


def test_candidates_are_looked_at_once_and_again_when_something_started_there() -> None:
    first, second = (JoinableGpu(1, GpuId("n0", number), 5, 0) for number in range(2))
    candidates = Candidates([second, first], lambda entry: entry.left_bytes >= 3)
    changed = first._replace(rank=2, left_bytes=4)
    assert next(candidates.walk({}, [])) == first
    now, fresh = {changed.gpu: changed}, [changed]
    assert list(candidates.walk(now, fresh)) == [second, changed]
    assert list(candidates.walk(now, fresh)) == []
    full = changed._replace(rank=3, left_bytes=2)
    assert list(candidates.walk({full.gpu: full}, [*fresh, full])) == []
