"""What policies keep from plan to plan: what a look at every job would find, and never a reason to decide otherwise."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.model.hardware import Node
from colane.model.job import JobId, NeedClass
from colane.model.plan import ON_CHANGE, Plan, Replan
from colane.scheduling.engine.live import LiveJobs, PoolJobs
from colane.scheduling.registry import create
from tests.core.worlds import World, decided
from tests.examples import examples

EAGER = ["srtf:quantum_s=1", "las:queues_gpu_s=5", "max-min:quantum_s=2"]
KEEPING = [
    *EAGER,
    "colane:quantum_s=1,move_s=0",
    "max-min-packed:quantum_s=1",
    "finish-time-fair:lease_s=1",
    "sjf",
    "sjf:usage_half_life_s=20",
    "fifo-skip:usage_half_life_s=20",
    "drf",
]
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def anew(state: ClusterState) -> LiveJobs:
    """The index as made now."""
    fresh = LiveJobs()
    for order in state.by_order:
        fresh.touched(order)
    for job in state.jobs.values():
        fresh.moved(None, job)
    return fresh


@examples(25)
@given(seed=SEEDS, policy=st.sampled_from(EAGER))
def test_who_runs_and_waits_is_known_after_every_event(seed: int, policy: str) -> None:
    world = World(create(policy), seed)
    state = world.core.state
    for _ in range(50):
        world.step(world.random_event())
        view, known, fresh = ClusterView(state, world.now_s), state.derived(LiveJobs), anew(state)
        for pool in state.gpu_types:
            healthy = [gpu for node in _nodes(view, pool) for gpu in node.gpus if gpu.healthy]
            assert known.gpus(view, pool).total() == fresh.gpus(view, pool).total() == len(healthy)
            mine, other = known.pool(pool), fresh.pool(pool)
            assert {need: count.jobs for need, count in mine.needs.items()} == {
                n: c.jobs for n, c in other.needs.items()
            }
            assert (mine.demands, mine.returned, mine.going) == (other.demands, other.returned, other.going)
            assert [*mine.past_min_runtime(world.now_s, 5.0)] == [*other.past_min_runtime(world.now_s, 5.0)]
            assert mine.min_runtime_until_s(world.now_s, 5.0) == other.min_runtime_until_s(world.now_s, 5.0)


def _counts(standing: PoolJobs) -> dict[NeedClass, int]:
    return {need: gpu_group.jobs for need, gpu_group in standing.needs.items()}


def _nodes(view: ClusterView, pool: str) -> list[Node]:
    return [node.node for node in view.nodes.values() if node.node.pool == pool]


def _asked_again(plan: Plan) -> dict[str, Replan]:
    """When a plan is made again, whoever it looks at."""
    whole = {pool: one._replace(newcomers_only=False, full_up_to=-inf) for pool, one in plan.replan.items()}
    return {pool: one for pool, one in whole.items() if one != ON_CHANGE}


@examples(100)
@given(seed=SEEDS, policy=st.sampled_from(KEEPING))
def test_what_is_left_out_could_have_changed_nothing(seed: int, policy: str) -> None:
    """To explain a wait every class is looked at; otherwise those are left out that cannot be helped."""
    world = World(create(policy), seed)
    state = world.core.state
    for _ in range(40):
        world.step(world.random_event())
        asked = next((job.id for job in state.jobs.values() if job.is_waiting), JobId(0))
        quick, thorough = (
            world.core.policy.plan(ClusterView(state, world.now_s + 3.0, explain=explain)) for explain in (None, asked)
        )
        assert quick.actions == thorough.actions
        assert _asked_again(quick) == _asked_again(thorough)


@pytest.mark.parametrize("policy", KEEPING)
@pytest.mark.parametrize("seed", range(3))
def test_a_scheduler_that_remembers_decides_as_one_that_was_just_started(policy: str, seed: int) -> None:
    remembers, forgets = (decided(World(create(policy), seed), 60, forgets=forgets) for forgets in (False, True))
    assert remembers == forgets
    assert remembers
