"""No room is made on GPUs that a job would then decline: its utility there is below the least it asks for."""

from __future__ import annotations

import pytest

from colane.core import Core
from colane.core.events import Launched, Tick
from colane.model.job import JobId, JobState
from colane.scheduling.registry import create
from tests.scheduling.machines import disturbing, machine, start, submit

POLICIES = ("topo-aware-p", "colane:jobs_per_gpu_max=1")
HIGH = 1
"""Others have priority 0."""


def full(policy: str, *movable: int, nodes: int = 1, disturbs: tuple[tuple[str, str, float], ...] = ()) -> Core:
    """Four jobs of one GPU on each node, in order, two to a socket; those of these numbers may be stopped."""
    core = start(create(policy), [machine(f"n{place}") for place in range(nodes)], disturbing(*disturbs))
    for number in range(1, 4 * nodes + 1):
        submit(core, number, family=f"f{number}", preemptible=number in movable)
        core.step([Launched(JobId(number), 1, number, 0.0)], 0.0)
    return core


def leaving(core: Core) -> set[int]:
    """Who has to stop for job 99."""
    core.step([Tick()], 501.0)
    return {job.id for job in core.state.jobs.values() if job.state is JobState.STOPPING}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("least", "leave"), [(0.0, {1, 4}), (1.0, set())])
def test_no_job_leaves_for_a_gang_that_would_decline_the_place(policy: str, least: float, leave: set[int]) -> None:
    core = full(policy, 1, 4)
    submit(core, 99, 500.0, gpus=2, priority=HIGH, utility_min=least)
    assert leaving(core) == leave


@pytest.mark.parametrize("policy", POLICIES)
def test_of_several_those_leave_where_the_gang_lies_well(policy: str) -> None:
    core = full(policy, 1, 3, 4)
    submit(core, 99, 500.0, gpus=2, priority=HIGH, utility_min=1.0)
    assert leaving(core) == {3, 4}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("movable", "leave"), [((1,), set()), ((1, 3), {3})])
def test_no_job_leaves_a_place_beside_a_neighbour_that_slows_the_newcomer_too_much(
    policy: str, movable: tuple[int, ...], leave: set[int]
) -> None:
    core = full(policy, *movable, disturbs=(("me", "f2", 1.5),))
    submit(core, 99, 500.0, family="me", priority=HIGH, utility_min=0.9)
    assert leaving(core) == leave


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("least", "leave"), [(0.1, {1, 2, 3, 5, 6, 7}), (0.9, set())])
def test_over_nodes_the_same_is_asked(policy: str, least: float, leave: set[int]) -> None:
    core = full(policy, 1, 2, 3, 5, 6, 7, nodes=2)
    submit(core, 99, 500.0, gpus=6, multi_node=True, priority=HIGH, utility_min=least)
    assert leaving(core) == leave


@pytest.mark.parametrize("policy", POLICIES)
def test_once_it_has_waited_long_enough_it_takes_what_there_is(policy: str) -> None:
    core = full(f"{policy}{',' if ':' in policy else ':'}max_wait_s=100", 1, 4)
    submit(core, 99, 500.0, gpus=2, priority=HIGH, utility_min=1.0)
    assert leaving(core) == set()
    core.step([Tick()], 700.0)
    assert leaving(core) == {1, 4}
