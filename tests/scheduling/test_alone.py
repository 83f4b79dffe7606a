"""A job that waits alone in its pool is placed without a draft: as one that goes through all parts would be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.view import ClusterView
from colane.core.events import NodeRegistered, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.plan import Plan
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.loop import Composed
from colane.scheduling.registry import create
from tests.core.worlds import GIB, World, make_node
from tests.examples import examples
from tests.scheduling.life import Life, job

PLACING_ALONE = ("fifo", "fcfs", "slurm-fifo", "fifo:max_wait_s=20", "fifo:gpu_types=V100/P100")
DRAFTING = ("colane", "srtf", "pack", "topo-aware", "sjf", "fifo-skip", "fifo:usage_half_life_s=60")
BOOKED = [{"gpu_memory_bytes": 9 * GIB}, {"cores": 2}, {"host_memory_bytes": 1}, {"gpus": 3}, {"gpus": 0, "cores": 1}]

Wanted = tuple[float, float, int, int | None, int]
"""When a job comes, for how long it runs, on how many GPUs of how much memory, with what priority."""

JOBS: st.SearchStrategy[list[Wanted]] = st.lists(
    st.tuples(
        st.floats(0.0, 900.0),
        st.floats(1.0, 300.0),
        st.integers(1, 4),
        st.sampled_from([None, 9 * GIB]),
        st.integers(0, 2),
    ),
    max_size=25,
)
NODES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([8 * GIB, 16 * GIB])), max_size=4)


class Compared:
    """Asks twice: as policies are asked, and in a draft; `alone` counts those that took none."""

    def __init__(self, policy: Composed) -> None:
        self.policy, self.alone = policy, 0
        self.name, self.turns = policy.name, policy.turns
        self.min_runtime_before_preemption_s = policy.min_runtime_before_preemption_s

    def plan(self, view: ClusterView) -> Plan:
        plan = self.policy.plan(view)
        assert plan == self.policy.plan_in_draft(view)
        self.alone += type(plan.waits) is not dict
        return plan


def compared(name: str) -> Compared:
    policy = create(name)
    assert isinstance(policy, Composed)
    return Compared(policy)


def live(policy: Compared, nodes: list[tuple[int, int]], jobs: list[Wanted]) -> None:
    """Jobs of whole GPUs that book nothing else; the last node has what any of them needs."""
    there = []
    for number, (gpus, memory_bytes) in enumerate([*nodes, (4, 16 * GIB)]):
        node = make_node(f"n{number}", gpus)
        there.append(replace(node, gpus=tuple([replace(gpu, memory_bytes=memory_bytes) for gpu in node.gpus])))
    coming = [
        job(at_s, run_s, gpus=gpus, gpu_memory_bytes=memory_bytes, priority=priority)
        for at_s, run_s, gpus, memory_bytes, priority in jobs
    ]
    Life(policy, there, coming).run()


@pytest.mark.parametrize("name", PLACING_ALONE)
@examples(10)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_in_any_world_it_has_the_place_it_would_have_in_a_draft(name: str, seed: int) -> None:
    world = World(compared(name), seed)
    for _ in range(60):
        world.step(world.random_event())


@pytest.mark.parametrize("name", PLACING_ALONE)
@examples(20)
@given(nodes=NODES, jobs=JOBS)
def test_so_it_has_where_many_jobs_come_alone(name: str, nodes: list[tuple[int, int]], jobs: list[Wanted]) -> None:
    live(compared(name), nodes, jobs)


@pytest.mark.parametrize("name", PLACING_ALONE)
def test_most_that_come_alone_take_no_draft(name: str) -> None:
    policy = compared(name)
    live(policy, [(4, 8 * GIB)], [(100.0 * k, 90.0, 1 + k % 4, [None, 9 * GIB][k % 2], 0) for k in range(20)])
    assert policy.alone == 20


@pytest.mark.parametrize("needs", BOOKED)
def test_what_it_books_besides_and_gpus_too_small_are_seen(needs: dict[str, int]) -> None:
    core = Core(compared("fifo"), ClusterState(Beliefs()))
    nodes = [make_node(name, 4) for name in ("a0", "b0")]
    small = tuple([replace(gpu, memory_bytes=8 * GIB) for gpu in nodes[0].gpus])
    core.step([NodeRegistered(replace(nodes[0], gpus=small)), NodeRegistered(nodes[1])], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f", **needs))], 1.0)  # type: ignore[arg-type]
    placement = core.state.jobs[JobId(1)].placement
    assert placement is not None
    assert placement.node == ("b0" if "gpu_memory_bytes" in needs else "a0")


@pytest.mark.parametrize("name", DRAFTING)
def test_policies_that_look_at_more_always_take_a_draft(name: str) -> None:
    policy = compared(name)
    live(policy, [], [(100.0 * k, 90.0, 1, None, 0) for k in range(5)])
    assert policy.alone == 0


def test_without_a_source_it_waits() -> None:
    core = Core(replace(compared("fifo").policy, sources=()), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("a0", 1))], 0.0)
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f"))], 1.0)
    assert core.state.jobs[JobId(1)].placement is None
