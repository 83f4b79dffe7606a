"""Amounts as one type, and what nodes could ever hold."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.inventory import Inventory, Lack, Shortfall
from colane.model.job import JobId, JobSpec
from colane.model.resources import Resources, host_capacity, needs, ranks_held
from colane.perf.beliefs import Beliefs
from colane.scheduling import registry

GB = 10**9


def node(name: str, gpus: int, cores: int = 8, gpu_type: str = "V100", **fields: Any) -> Node:
    devices = tuple(Gpu(index=i, uuid=f"{name}-{i}", type=gpu_type, memory_bytes=16 * GB) for i in range(gpus))
    return Node(name=name, gpus=devices, cores=tuple(range(cores)), host_memory_bytes=64 * GB, **fields)


def spec(gpus: int = 1, **fields: Any) -> JobSpec:
    return JobSpec(name="j", family="f", gpus=gpus, **fields)


def lack(job: JobSpec, *nodes: Node) -> Shortfall | None:
    return Inventory(nodes).shortfall(job)


amounts = st.builds(Resources, *[st.integers(0, 9)] * 5)


@given(amounts, amounts)
def test_a_sum_has_room_for_its_parts_and_a_difference_gives_the_rest_back(one: Resources, other: Resources) -> None:
    both = one + other
    assert one <= both
    assert other <= both
    assert (both - other).gpus == one.gpus
    assert (both - other).cores == one.cores
    assert (both - other).host_memory_bytes == one.host_memory_bytes


def test_each_amount_is_compared_for_itself() -> None:
    assert not Resources(gpus=2) <= Resources(gpus=1, cores=99)
    assert not Resources(gpu_memory_bytes=2) <= Resources(gpus=9, gpu_memory_bytes=1)
    assert Resources(host_bandwidth_bytes_per_s=9) <= host_capacity(node("a", 1)) + Resources(gpus=1)
    assert host_capacity(node("a", 1)).host_bandwidth_bytes_per_s == inf


def test_parts_are_rounded_up_by_ranks() -> None:
    job = spec(3, cores=4, host_memory_bytes=10, gpu_memory_bytes=7)
    assert needs(job, 2) == Resources(2, 3, 7, 0, 7)
    assert needs(job, 3) == Resources(3, 4, 10, 0, 7)


@pytest.mark.parametrize(
    ("job", "nodes", "shortfall"),
    [
        (spec(), [], Shortfall(Lack.NODES)),
        (spec(), [node("a", 0)], Shortfall(Lack.GPUS, 1)),
        (spec(gpu_type="H100"), [node("a", 1)], Shortfall(Lack.GPU_TYPE, 1)),
        (spec(4), [node("a", 2), node("b", 3)], Shortfall(Lack.GPUS, 4, 3)),
        (spec(gpu_memory_bytes=17 * GB), [node("a", 2)], Shortfall(Lack.GPU_MEMORY, 17 * GB, 16 * GB)),
        (spec(cores=9), [node("a", 2)], Shortfall(Lack.CORES, 9, 8)),
        (spec(host_memory_bytes=65 * GB), [node("a", 2)], Shortfall(Lack.HOST_MEMORY, 65 * GB, 64 * GB)),
        (
            spec(host_bandwidth_bytes_per_s=3),
            [node("a", 2, host_bandwidth_bytes_per_s=2)],
            Shortfall(Lack.HOST_BANDWIDTH, 3, 2),
        ),
        (spec(cores=9), [node("a", 1), node("b", 0, cores=16)], Shortfall(Lack.AT_ONCE)),
        (spec(5, multi_node=True), [node("a", 2), node("b", 3)], None),
        (spec(6, multi_node=True), [node("a", 2), node("b", 3)], Shortfall(Lack.GPUS, 6, 5)),
        (spec(3, multi_node=True), [node("a", 2), node("b", 2, gpu_type="T4")], Shortfall(Lack.GPUS, 3, 2)),
        (
            spec(3, multi_node=True, anti_collocation=True),
            [node("a", 9), node("b", 9)],
            Shortfall(Lack.GPUS, 3, 2),
        ),
        (spec(4, cores=16, multi_node=True), [node("a", 2), node("b", 2)], None),
        (spec(4, cores=20, multi_node=True), [node("a", 2), node("b", 2)], Shortfall(Lack.AT_ONCE, 4, 2)),
        (spec(0, cores=8), [node("a", 0)], None),
        (spec(0, cores=9), [node("a", 0)], Shortfall(Lack.CORES, 9, 8)),
    ],
)
def test_what_could_never_be_held_and_why(job: JobSpec, nodes: list[Node], shortfall: Shortfall | None) -> None:
    assert lack(job, *nodes) == shortfall


def test_of_the_instances_of_a_gpu_a_job_is_given_one() -> None:
    """CUDA shows a process no second one."""
    instances = node("a", 4, gpu_type="NVIDIA H100 MIG 3g.40gb")
    assert lack(spec(1), instances) is None
    assert lack(spec(2), instances) == Shortfall(Lack.GPUS, 2, 1)
    assert lack(spec(2), instances, node("b", 2)) is None
    other = node("b", 1, gpu_type="NVIDIA H100 MIG 3g.40gb")
    assert lack(spec(2, multi_node=True), instances, other) == Shortfall(Lack.GPUS, 2, 1)
    assert lack(spec(2, multi_node=True, anti_collocation=True), instances, other) is None


def test_ill_gpus_count_only_where_asked() -> None:
    ill = node("a", 2)
    ill = replace(ill, gpus=(replace(ill.gpus[0], healthy=False), ill.gpus[1]))
    assert ranks_held(ill, spec(2), "V100") == 2
    assert ranks_held(ill, spec(2), "V100", usable_only=True) == 1


@given(
    gpus=st.integers(1, 6),
    cores=st.integers(0, 20),
    multi_node=st.booleans(),
    apart=st.booleans(),
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_just_what_is_held_starts_on_empty_nodes(
    gpus: int, cores: int, multi_node: bool, apart: bool, sizes: list[tuple[int, int]]
) -> None:
    """The answer is neither hopeful nor timid: a policy finds a place at once where there is one."""
    job = spec(gpus, cores=cores, multi_node=multi_node, anti_collocation=multi_node and apart)
    nodes = [node(f"n{i}", has, cores=has_cores) for i, (has, has_cores) in enumerate(sizes)]
    core = Core(registry.create("fifo"), ClusterState(Beliefs()))
    outcome = core.step([*map(NodeRegistered, nodes), Submitted(JobId(1), job)], 0.0)
    assert bool(outcome.decisions) == (lack(job, *nodes) is None)
