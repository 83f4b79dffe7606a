"""Jobs over several nodes are gathered on one that has room for all of their ranks, if that pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import Core
from colane.core.events import NodeDrained, ProfileDeclared, Tick
from colane.model.hardware import Drain
from colane.model.job import JobId, JobSpec
from colane.model.profile import PlacePace, ProfileKey, Value, ValueSource
from colane.model.reason import Why
from tests.scheduling.test_elastic_nodes import core, on_nodes, over
from tests.scheduling.test_elastic_value import go_on, profile, rigid, submit

POLICY = "colane:jobs_per_gpu_max=1"
GANG = JobSpec(
    name="gang", family="gang", gpus=3, steps_total=1_000_000, preemptible=True, share=False, multi_node=True
)
TOGETHER, APART = 3.0, 201.0
"""Sums of the shortest paths between three GPUs of one socket, and of two and one on two nodes."""


def scattered(spec: JobSpec = GANG, policy: str = POLICY, drained: str = "", **step_s: float) -> Core:
    """Job 3 has two GPUs of `n0` and one of `n1`, job 1 the other two of `n0`, job 2 the other three of `n1`."""
    made = core(policy, 4, 4, *([4] if drained else []))
    if drained:
        made.step([NodeDrained(drained, Drain("ops", "", 0.5))], 0.5)
    known = profile("gang", 3, 1.0)
    places = tuple([PlacePace(at, Value(step_s[name], ValueSource.MEASURED, 100))
                    for name, at in (("together", TOGETHER), ("apart", APART)) if name in step_s])  # fmt: skip
    made.step([ProfileDeclared(replace(known, places=places))], 1.0)
    assert known.key == ProfileKey("gang", None, 3, "V100")
    submit(made, 10.0, replace(rigid(2), steps_total=10**8), replace(rigid(3), steps_total=10**8))
    submit(made, 20.0, spec)
    assert on_nodes(made, 3) == {"n0": 2, "n1": 1}
    return made


@pytest.mark.parametrize(("leaves", "node"), [(1, "n0"), (2, "n1")])
def test_it_goes_to_the_node_that_falls_free_and_says_so(leaves: int, node: str) -> None:
    made = scattered()
    over(made, leaves, 1000.0)
    assert on_nodes(made, 3) == {node: 3}
    told = [change.reason for change in made.state.jobs[JobId(3)].story if change.reason.why is Why.CONSOLIDATED]
    assert told
    assert told[0].facts == {"nodes": 2, "node": node, "faster": 1.5}


def test_once_it_is_there_it_stays() -> None:
    made = scattered()
    over(made, 1, 1000.0)
    attempt = made.state.jobs[JobId(3)].attempt
    over(made, 2, 2000.0)
    made.step([Tick()], 9000.0)
    go_on(made, 9001.0)
    assert (on_nodes(made, 3), made.state.jobs[JobId(3)].attempt) == ({"n0": 3}, attempt)


@pytest.mark.parametrize(
    "stays",
    [
        {"spec": replace(GANG, preemptible=False)},
        {"spec": replace(GANG, steps_total=981)},
        {"policy": f"{POLICY},consolidates=no"},
        {"policy": f"{POLICY},moves=no"},
        {"together": 1.0, "apart": 1.05},
    ],
    ids=["cannot be stopped", "is nearly through", "is not asked for", "no job is moved", "was seen to gain little"],
)
def test_it_stays_where_it_may_not_or_need_not_go(stays: dict[str, object]) -> None:
    made = scattered(**stays)  # type: ignore[arg-type]
    over(made, 1, 1000.0)
    assert on_nodes(made, 3) == {"n0": 2, "n1": 1}


def test_what_was_seen_of_its_kind_says_how_much_faster_it_is() -> None:
    made = scattered(together=1.0, apart=3.0)
    over(made, 1, 1000.0)
    assert on_nodes(made, 3) == {"n0": 3}
    story = made.state.jobs[JobId(3)].story
    assert {change.reason.facts["faster"] for change in story if change.reason.why is Why.CONSOLIDATED} == {3.0}


def test_ranks_that_must_lie_apart_are_left_apart() -> None:
    made = core(POLICY, 4, 4, 4)
    submit(made, 10.0, replace(GANG, anti_collocation=True))
    assert on_nodes(made, 1) == {"n0": 1, "n1": 1, "n2": 1}
    made.step([Tick()], 1000.0)
    go_on(made, 1001.0)
    assert len(on_nodes(made, 1)) == 3


def test_no_job_is_gathered_on_a_node_that_is_drained() -> None:
    made = scattered(drained="n2")
    made.step([Tick()], 1000.0)
    go_on(made, 1001.0)
    assert on_nodes(made, 3) == {"n0": 2, "n1": 1}


def test_no_job_is_gathered_on_a_node_that_lacks_cores() -> None:
    cores = len(core(POLICY, 4).state.nodes["n0"].node.cores)
    made = scattered(replace(GANG, cores=3 * (cores // 2)))
    over(made, 2, 1000.0)
    assert on_nodes(made, 3) == {"n0": 2, "n1": 1}
