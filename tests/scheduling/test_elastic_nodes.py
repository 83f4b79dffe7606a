"""Elastic jobs that may span nodes: they grow over them, keep the fewest, and give way to newcomers of any size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, NodeDrained, NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import Drain
from colane.model.job import Exit, JobId, JobSpec
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.scheduling.test_elastic_value import elastic, go_on, profile, rigid, sizes, submit

SIZES = (1, 2, 4, 6, 8)
POLICIES = ("f-sched", "colane:jobs_per_gpu_max=1")


def wide(steps: int = 1_000_000, cores: int = 0) -> JobSpec:
    return replace(elastic("wide", steps, SIZES), multi_node=True, cores=cores)


def core(policy: str, *gpus: int) -> Core:
    made = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    known = [profile("wide", n, n**0.9) for n in range(1, 9)] + [profile("rigid", n, 1.0) for n in (1, 2, 4)]
    nodes = [NodeRegistered(make_node(f"n{place}", many)) for place, many in enumerate(gpus)]
    made.step([*nodes, *map(ProfileDeclared, known)], 0.0)
    return made


def on_nodes(made: Core, job: int) -> dict[str, int]:
    placement = made.state.jobs[JobId(job)].placement
    assert placement is not None
    return {name: len(placement.slots_on(name)) for name in placement.nodes}


def over(made: Core, job: int, at_s: float) -> None:
    attempt, placement = made.state.jobs[JobId(job)].attempt, made.state.jobs[JobId(job)].placement
    assert placement is not None
    made.step(
        [Ended(JobId(job), attempt, "exited", Exit(0, None), at_s, at_s, None, node) for node in placement.nodes], at_s
    )
    go_on(made, at_s + 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_grows_over_nodes_as_they_fall_free(policy: str) -> None:
    made = core(policy, 4, 4)
    submit(made, 10.0, rigid(4), wide())
    assert (sizes(made), on_nodes(made, 2)) == ({1: 4, 2: 4}, {"n1": 4})
    over(made, 1, 100.0)
    assert on_nodes(made, 2) == {"n0": 4, "n1": 4}


def test_two_share_the_nodes_out() -> None:
    made = core("f-sched", 4, 4)
    submit(made, 10.0, wide())
    assert sizes(made) == {1: 8}
    submit(made, 1000.0, wide())
    assert sizes(made) == {1: 4, 2: 4}
    assert (len(on_nodes(made, 1)), len(on_nodes(made, 2))) == (1, 1), "each on a node of its own"


def test_it_shrinks_for_a_newcomer_on_one_node_and_keeps_the_nodes_it_has_most_of() -> None:
    made = core("f-sched", 4, 4)
    submit(made, 10.0, rigid(2), wide())
    assert on_nodes(made, 2) == {"n0": 2, "n1": 4}
    submit(made, 1000.0, rigid(2))
    assert (sizes(made), on_nodes(made, 2)) == ({1: 2, 2: 4, 3: 2}, {"n1": 4})


def test_a_newcomer_over_several_nodes_has_room_made_on_all_of_them() -> None:
    made = core("f-sched", 2, 2)
    small = replace(elastic("wide", 1_000_000, (1, 2)), multi_node=False)
    submit(made, 10.0, small, small)
    assert sizes(made) == {1: 2, 2: 2}
    spans = replace(rigid(2), multi_node=True, steps_total=600)
    submit(made, 1000.0, spans)
    assert (sizes(made), on_nodes(made, 3)) == ({1: 1, 2: 1, 3: 2}, {"n0": 1, "n1": 1})


def test_it_takes_no_more_of_a_node_than_its_cores_allow_and_nothing_of_one_that_is_drained() -> None:
    made = core("f-sched", 4, 4, 4)
    cores = len(made.state.nodes["n1"].node.cores)
    submit(made, 10.0, rigid(4), rigid(4), rigid(4), wide(cores=8 * (cores // 2)))
    made.step([NodeDrained("n2", Drain("ops", "", 50.0))], 50.0)
    for job, at_s in ((3, 100.0), (2, 200.0), (1, 300.0)):
        over(made, job, at_s)
    assert on_nodes(made, 4) == {"n0": 2, "n1": 2}, "half of a node's cores for each GPU"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_job_has_left_follows_from_its_steps_not_from_how_long_it_ran_small(policy: str) -> None:
    """At one GPU it takes seven times as long as it was believed to need with eight: it still grows."""
    made = core(policy, 8)
    submit(made, 10.0, replace(rigid(4), steps_total=10**7), replace(rigid(2), steps_total=10**7), rigid())
    submit(made, 20.0, wide(steps=100_000))
    assert sizes(made) == {1: 4, 2: 2, 3: 1, 4: 1}
    over(made, 1, 40_000.0)
    assert sizes(made)[4] > 1


def test_a_job_whose_kind_was_seen_to_step_is_not_resized_before_its_first_step() -> None:
    made = core("f-sched", 4)
    seen = Profile(key=ProfileKey("wide", None, 1, "V100"), step_s=Value(1.0, ValueSource.MEASURED, 100))
    submit(made, 10.0, rigid(2), rigid(1))
    submit(made, 20.0, wide())
    assert sizes(made) == {1: 2, 2: 1, 3: 1}
    made.state.knowledge.learn_profile(seen)
    over(made, 1, 100.0)
    assert sizes(made) == {2: 1, 3: 1}
    made.step([Submitted(JobId(9), rigid(4))], 700.0)
    go_on(made, 701.0)
    assert sizes(made) == {2: 1, 3: 2}, "it has been silent for ten minutes: it may show no steps this time"


@pytest.mark.parametrize(
    ("bound", "gpus", "then"),
    [
        ("", 8, {2: 8}),
        (",variance_max=0.01", 8, {2: 4, 3: 4}),
        ("", 12, {2: 8, 3: 4}),
        (",variance_max=0.01", 12, {2: 6, 3: 6}),
    ],
)
def test_what_falls_free_goes_where_speeds_then_vary_least(bound: str, gpus: int, then: dict[int, int]) -> None:
    made = core(f"colane:jobs_per_gpu_max=1{bound}", gpus)
    submit(made, 10.0, rigid(gpus - 2))
    submit(made, 20.0, wide(), wide())
    over(made, 1, 1000.0)
    go_on(made, 1002.0)
    assert sizes(made) == then
