"""What the writer does for a node of which only the jobs have changed does not grow with the number of nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.calls import calls_of

from colane.model.hardware import Gpu, Node
from colane.model.job import JobSpec
from colane.server.board.read_model import NodeRecord, ReadModel


def read_model_of(count: int) -> ReadModel:
    made = ReadModel()
    gpus = (Gpu(index=0, uuid="u", type="A100", memory_bytes=10),)
    made.put_nodes(NodeRecord(Node(name=f"n{number}", gpus=gpus), 1, number) for number in range(count))
    return made


def turn(made: ReadModel) -> None:
    """A job comes to a node, and another is judged."""
    made.put_nodes([replace(made.nodes["n3"], generation=7)])
    assert made.hardware.problem(JobSpec(name="job", family="f")) is None


def test_a_job_that_comes_to_a_node_costs_the_same_however_many_nodes_there_are() -> None:
    few, many = read_model_of(10), read_model_of(1_000)
    turn(few)
    turn(many)
    assert calls_of(turn, many) == calls_of(turn, few)


def test_nodes_that_register_are_looked_at_once_a_request_is_judged() -> None:
    few, many = read_model_of(10), read_model_of(1_000)
    record = NodeRecord(Node(name="new", gpus=()), 1, 5_000)
    assert calls_of(many.put_nodes, [record]) == calls_of(few.put_nodes, [record])


@pytest.mark.parametrize("removed", [False, True])
def test_what_nodes_have_is_known_at_once(removed: bool) -> None:
    made = read_model_of(2)
    spec = JobSpec(name="job", family="f", gpus=2, gpu_type="A100")
    assert made.hardware.problem(spec) is not None
    twice = tuple(Gpu(index=index, uuid=f"v{index}", type="A100", memory_bytes=10) for index in range(2))
    made.put_nodes([replace(made.nodes["n0"], node=Node(name="n0", gpus=twice))])
    assert made.hardware.problem(spec) is None
    if removed:
        made.put_nodes([], ["n0"])
        assert made.hardware.problem(spec) is not None
