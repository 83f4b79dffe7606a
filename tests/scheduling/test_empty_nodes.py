"""What empty nodes could hold is remembered, and forgotten once a node is another."""

from __future__ import annotations

from dataclasses import replace

from colane.core import ClusterState
from colane.core.cluster.view import ClusterView
from colane.model.job import JobSpec
from colane.perf.beliefs import Beliefs
from colane.scheduling.admissions.ageing import EmptyNodes
from tests.core.worlds import make_node


def able(state: ClusterState, gpus: int) -> dict[int, int]:
    view = ClusterView(state, 0.0)
    spec = JobSpec(name="a", family="a", gpus=gpus)
    return view.derived(EmptyNodes).able(view, spec, view.gpu_types(spec.pool)[0]).ranks


def test_follows_nodes_that_come_change_and_go() -> None:
    state = ClusterState(Beliefs())
    state.put_node(make_node("n0", 2))
    state.put_node(make_node("n1", 4))
    assert able(state, 1) == {0: 1, 1: 1}
    assert able(state, 4) == {1: 4}
    node = state.nodes["n1"].node
    state.put_node(replace(node, gpus=tuple(replace(gpu, healthy=False) for gpu in node.gpus)))
    assert able(state, 4) == {}
    state.put_node(make_node("n2", 4))
    assert able(state, 4) == {2: 4}
    state.remove_node("n2")
    assert able(state, 4) == {}
