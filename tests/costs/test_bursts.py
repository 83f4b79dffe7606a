"""What it costs to start many jobs that come at once grows with their number, not with its square."""

from __future__ import annotations

import pytest
from benchmarks.calls import calls_of

from colane.core import ClusterState, Core, core
from colane.core.cluster.draft import ACTIONS_MAX
from colane.core.events import NodeRegistered, Submitted
from colane.model.job import JobId, JobSpec
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node

pytestmark = pytest.mark.skipif(
    not core.__file__.endswith(".py"), reason="functions that compiled code calls are not seen"
)

NODE_GPUS = 8


def calls(policy: str, count: int, users: int, families: int) -> int:
    """Functions called to start so many jobs of one GPU, of so many users and families in turn."""
    made = Core(create(policy), ClusterState(Beliefs()))
    made.step([NodeRegistered(make_node(f"n{number}", NODE_GPUS)) for number in range(count // NODE_GPUS)], 0.0)
    come = [
        Submitted(
            JobId(number),
            JobSpec(
                name="j", family=f"f{number % families}", batch_size=64, steps_total=1000, user=f"u{number % users}"
            ),
        )
        for number in range(1, count + 1)
    ]
    found = calls_of(made.step, come, 1.0, whole=True)
    assert all(load.jobs for load in made.state.gpus.values())
    return found


@pytest.mark.parametrize(("users", "families"), [(1, 1), (1, 8), (8, 1), (8, 8)])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "colane", "colane:objective=fair"])
def test_a_start_of_many_costs_what_one_of_few_does(policy: str, users: int, families: int) -> None:
    assert calls(policy, 800, users, families) < 1.1 * 4 * calls(policy, 200, users, families)


@pytest.mark.parametrize("families", [1, 400])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "colane"])
def test_what_comes_at_once_is_decided_in_turns_that_are_short_and_alike(policy: str, families: int) -> None:
    """No turn decides more than one plan may, and in all the same is decided as in one."""
    in_turns, at_once = [_burst(policy, families, whole=whole) for whole in (False, True)]
    assert [job.placement for job in in_turns.state.jobs.values()] == [
        job.placement for job in at_once.state.jobs.values()
    ]


def _burst(policy: str, families: int, *, whole: bool) -> Core:
    made = Core(create(policy), ClusterState(Beliefs()))
    made.step([NodeRegistered(make_node(f"n{number}", NODE_GPUS)) for number in range(100)], 0.0)
    come = [
        Submitted(JobId(k), JobSpec(name="j", family=f"f{k % families}", batch_size=64, steps_total=1000))
        for k in range(1, 1001)
    ]
    decided = [len(made.step(come, 1.0, whole=whole).decisions)]
    while made.goes_on:
        decided.append(len(made.step([], 1.0).decisions))
    assert sum(decided) == 800
    assert whole or max(decided) <= ACTIONS_MAX
    return made
