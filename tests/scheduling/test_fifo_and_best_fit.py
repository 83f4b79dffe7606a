"""FIFO blocks at the head of the line; best fit passes it and keeps nodes whole."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered, Submitted
from colane.model.job import JobId, JobSpec
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import UnknownPolicyError, create
from tests.core.worlds import GIB, make_node


def run(policy: str, *gpus: int) -> Core:
    core = Core(create(policy), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 4)), NodeRegistered(make_node("n1", 2))], 0.0)
    core.step([Submitted(JobId(k), JobSpec(name="j", family="f", gpus=n)) for k, n in enumerate(gpus, 1)], 1.0)
    return core


def places(core: Core) -> dict[int, list[str]]:
    return {j.id: [str(gpu) for gpu in j.placement.gpus] for j in core.state.jobs.values() if j.placement}


def test_fifo_blocks_behind_a_job_that_does_not_fit() -> None:
    core = run("fifo", 3, 4, 1)
    assert places(core) == {1: ["n0/0", "n0/1", "n0/2"]}
    assert core.why(JobId(3), 1.0).jobs == (2,)


def test_fifo_follows_priority() -> None:
    core = Core(create("fifo"), ClusterState(Beliefs()))
    specs = [JobSpec(name="j", family="f", priority=p) for p in (0, 5)]
    core.step([Submitted(JobId(k), spec) for k, spec in enumerate(specs, 1)], 0.0)
    core.step([NodeRegistered(make_node("n0", 1))], 1.0)
    assert places(core) == {2: ["n0/0"]}


def test_fifo_tries_gpu_types_in_the_order_given() -> None:
    core = Core(create("fifo:gpu_types=V100/P100"), ClusterState(Beliefs()))
    nodes = [make_node(name, 1, gpu_type=kind) for name, kind in (("k", "K80"), ("p", "P100"), ("v", "V100"))]
    core.step([NodeRegistered(node) for node in nodes], 0.0)
    core.step([Submitted(JobId(k), JobSpec(name="j", family="f")) for k in (1, 2, 3)], 1.0)
    assert places(core) == {1: ["v/0"], 2: ["p/0"], 3: ["k/0"]}


def test_best_fit_passes_and_takes_the_node_with_the_fewest_free() -> None:
    core = run("best-fit", 3, 4, 1)
    assert places(core) == {1: ["n0/0", "n0/1", "n0/2"], 3: ["n0/3"]}
    core = run("best-fit", 2, 4)
    assert places(core) == {1: ["n1/0", "n1/1"], 2: ["n0/0", "n0/1", "n0/2", "n0/3"]}


def test_cores_near_the_gpu_are_taken_first_then_the_lowest() -> None:
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 2))], 0.0)
    core.step([Submitted(JobId(k), JobSpec(name="j", family="f", cores=3)) for k in (1, 2)], 1.0)
    cores = {j.id: j.placement.cores for j in core.state.jobs.values() if j.placement}
    assert cores == {1: (0, 1, 2), 2: (3, 4, 5)}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"cores": 17}, Why.NO_CORES),
        ({"host_memory_bytes": 65 * GIB}, Why.NO_HOST_MEMORY),
        ({"gpu_memory_bytes": 17 * GIB}, Why.NO_MEMORY),
        ({"pool": "mars"}, Why.NO_NODE),
        ({"gpu_type": "H100"}, Why.NO_NODE),
        ({"gpus": 5}, Why.NO_FREE_GPU),
    ],
)
def test_the_need_that_cannot_be_met_is_named(more: dict[str, int | str], why: Why) -> None:
    core = run("best-fit")
    core.step([Submitted(JobId(1), JobSpec(name="j", family="f", **more))], 1.0)  # type: ignore[arg-type]
    assert core.why(JobId(1), 1.0).why is why


def test_an_unknown_policy_names_its_neighbours() -> None:
    with pytest.raises(UnknownPolicyError, match="did you mean colocate"):
        create("collocate")
