"""Room made on several nodes for jobs that may span them, and jobs over several nodes that leave for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, NodeRegistered, Submitted, Tick
from colane.model.job import Exit, JobId, JobSpec, JobState
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import make_node
from tests.scheduling.test_elastic_nodes import on_nodes, over
from tests.scheduling.test_elastic_value import go_on, submit

LAS = "las:queues_gpu_s=100"
YOUNG_S, OLD_S = 20.0, 500.0
"""When those who came at 10 s have had less than 100 GPU seconds, and when they have had more."""

ONE = JobSpec(name="one", family="one", preemptible=True, share=False)
GANG = replace(ONE, name="gang", family="gang", gpus=4, multi_node=True)


def cluster(*gpus: int, policy: str = LAS, cores: int = 16) -> Core:
    made = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    made.step([NodeRegistered(make_node(f"n{at}", many, cores=cores)) for at, many in enumerate(gpus)], 0.0)
    return made


def runs(made: Core) -> list[int]:
    return [job.id for job in made.state.jobs.values() if job.state is JobState.RUNNING]


def leaving(made: Core) -> list[int]:
    return [job.id for job in made.state.jobs.values() if job.state is JobState.STOPPING]


def comes(made: Core, at_s: float, spec: JobSpec) -> JobId:
    """A job comes, and none has left yet."""
    number = JobId(max(made.state.jobs, default=0) + 1)
    assert made.step([Submitted(number, spec)], at_s).rejected is None
    audit(made.state)
    return number


def gone(made: Core, number: int, at_s: float) -> None:
    """A job that was asked to has left all of its nodes."""
    left = made.state.jobs[JobId(number)]
    assert left.placement is not None
    exits = [
        Ended(left.id, left.attempt, "signalled", Exit(None, 15), at_s, at_s, None, n) for n in left.placement.nodes
    ]
    assert made.step(exits, at_s).rejected is None
    audit(made.state)


# -- room for a gang


def test_a_gang_has_room_made_on_two_nodes() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    submit(made, OLD_S, GANG)
    assert (runs(made), on_nodes(made, 5)) == ([5], {"n0": 2, "n1": 2})


def test_as_few_leave_as_it_takes_the_last_to_come_of_the_old_ones() -> None:
    """Of five GPUs one is free: the last three that came leave, wherever they are."""
    made = cluster(2, 3)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    submit(made, OLD_S, GANG)
    assert (runs(made), on_nodes(made, 5)) == ([1, 5], {"n0": 1, "n1": 3})


def test_one_node_is_emptied_rather_than_two() -> None:
    made = cluster(4, 2)
    submit(made, 10.0, *[ONE] * 6)
    submit(made, OLD_S, GANG)
    assert (runs(made), on_nodes(made, 7)) == ([5, 6, 7], {"n0": 4})


@pytest.mark.parametrize(
    ("policy", "gang", "at_s"),
    [
        (LAS, GANG, YOUNG_S),
        (LAS, replace(GANG, gpus=5), OLD_S),
        (LAS, replace(GANG, multi_node=False), OLD_S),
        (LAS, replace(GANG, gpus=3, anti_collocation=True), OLD_S),
        (LAS, replace(GANG, gpus=3, cores=30), OLD_S),
        (f"{LAS},over_nodes=no", GANG, OLD_S),
        ("colocate", GANG, OLD_S),
    ],
    ids=["of its queue", "too few", "on one node only", "a node each", "too few cores", "switched off", "of its rank"],
)
def test_no_job_leaves_where_that_may_not_be_or_would_not_do(policy: str, gang: JobSpec, at_s: float) -> None:
    made = cluster(2, 2, policy=policy)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    comes(made, at_s, gang)
    assert (runs(made), leaving(made)) == ([1, 2, 3, 4], [])


def test_no_job_leaves_if_one_of_those_that_had_to_cannot() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, ONE, ONE, ONE, replace(ONE, preemptible=False))
    comes(made, OLD_S, GANG)
    assert leaving(made) == []


@pytest.mark.parametrize("policy", ["colocate", "pack", "topo-aware", "f-sched", "srtf", "max-min", "colane"])
def test_so_does_every_policy_for_one_of_higher_priority(policy: str) -> None:
    made = cluster(2, 2, policy=policy)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    submit(made, OLD_S, replace(GANG, priority=1))
    assert (runs(made), on_nodes(made, 5)) == ([5], {"n0": 2, "n1": 2})


def test_a_node_for_each_rank_is_emptied_as_far_as_that_takes() -> None:
    made = cluster(2, 2, 2)
    submit(made, 10.0, *[ONE] * 6)
    submit(made, OLD_S, replace(GANG, gpus=3, anti_collocation=True))
    assert (runs(made), on_nodes(made, 7)) == ([1, 3, 5, 7], {"n0": 1, "n1": 1, "n2": 1})


def test_a_node_holds_as_many_ranks_as_it_has_cores_for() -> None:
    """Each rank books six cores, each of the others four: a node of 16 has room for two ranks once two have left."""
    made = cluster(4, 4)
    submit(made, 10.0, *[replace(ONE, cores=4)] * 8)
    submit(made, OLD_S, replace(GANG, gpus=4, cores=24))
    assert on_nodes(made, 9) == {"n0": 2, "n1": 2}
    assert len(runs(made)) == 3


# -- what comes free is kept


def test_what_comes_free_is_kept_for_it_and_no_other_leaves() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    gang = comes(made, OLD_S, GANG)
    assert made.state.jobs[gang].reason is not None
    told = made.why(gang, OLD_S)
    assert (told.why, told.jobs) == (Why.PREEMPTING, (1, 2, 3, 4))
    gone(made, 4, OLD_S + 1)
    small = comes(made, OLD_S + 2, ONE)
    made.step([Tick()], OLD_S + 3)
    assert made.state.jobs[small].placement is None
    assert leaving(made) == [1, 2, 3]
    go_on(made, OLD_S + 4)
    assert on_nodes(made, gang) == {"n0": 2, "n1": 2}


def test_why_they_left_names_the_gang() -> None:
    made = cluster(1, 1)
    submit(made, 10.0, ONE, ONE)
    gang = comes(made, OLD_S, replace(GANG, gpus=2))
    reasons = [made.state.jobs[JobId(number)].reason for number in (1, 2)]
    assert [(told.why, told.jobs) for told in reasons if told] == [(Why.PREEMPTED, (gang,))] * 2


def test_gpus_that_come_free_for_those_behind_are_taken_before_another_leaves() -> None:
    """Job 5 has 2 and 4 stopped; an urgent gang comes and takes their GPUs, and for job 5 others leave."""
    made = cluster(2, 2)
    submit(made, 10.0, ONE, ONE, ONE, ONE)
    behind = comes(made, OLD_S, replace(GANG, gpus=2, anti_collocation=True))
    assert len(leaving(made)) == 2
    urgent = comes(made, OLD_S + 1, replace(GANG, gpus=2, anti_collocation=True, priority=1))
    assert len(leaving(made)) == 4
    go_on(made, OLD_S + 2)
    assert on_nodes(made, urgent) == on_nodes(made, behind) == {"n0": 1, "n1": 1}


# -- jobs over several nodes leave


def test_a_job_over_two_nodes_leaves_both_for_a_young_one() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, GANG)
    submit(made, OLD_S, ONE, ONE)
    assert runs(made) == [2, 3]
    over(made, 2, OLD_S + 100)
    over(made, 3, OLD_S + 101)
    assert on_nodes(made, 1) == {"n0": 2, "n1": 2}


def test_what_it_leaves_elsewhere_is_for_others() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, GANG)
    comes(made, OLD_S, ONE)
    comes(made, OLD_S + 1, replace(ONE, gpus=2))
    assert leaving(made) == [1]
    go_on(made, OLD_S + 2)
    assert runs(made) == [2, 3]


def test_one_that_cannot_be_stopped_stays() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, replace(GANG, preemptible=False))
    comes(made, OLD_S, ONE)
    assert runs(made) == [1]


def test_gangs_over_the_same_nodes_take_turns() -> None:
    made = cluster(2, 2)
    submit(made, 10.0, GANG)
    submit(made, OLD_S, GANG)
    assert (runs(made), on_nodes(made, 2)) == ([2], {"n0": 2, "n1": 2})
    made.step([Tick()], 2 * OLD_S)
    assert (runs(made), leaving(made)) == ([2], [])
    over(made, 2, 2 * OLD_S + 1)
    assert runs(made) == [1]
