"""Distances, job graphs and utilities of paper C, with the authors' own numbers and by exhaustive search."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.hardware import Gpu, Link, LinkKind, Node, Topology
from colane.model.job import CommPattern, JobSpec
from colane.model.profile import ProfileKey
from colane.model.topologies import PRESETS
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import WORST_MIN, Beside, NeighbourBeliefs
from colane.perf.topology import (
    Comm,
    CostRange,
    Shape,
    best_order,
    bounds,
    comm_of,
    cost,
    distinct_sets,
    excess,
    flat,
    shape_of,
    shape_of_node,
)
from colane.perf.utility import EPSILON, NEUTRAL, Measure, Weights, harm_beside, job_utility, system_utility
from colane.scheduling.mechanisms.topology.node_fit import Question, exact
from colane.settings.topology_file import read_topology

T = TypeVar("T")
MINSKY = flat((0, 0, 1, 1))
presets = pytest.mark.parametrize("name", PRESETS)


def test_a_machine_of_two_sockets_has_the_authors_distances_and_bounds() -> None:
    assert MINSKY.distances == ((0, 1, 20, 20), (1, 0, 20, 20), (20, 20, 0, 1), (20, 20, 1, 0))
    assert shape_of(PRESETS["minsky"]()).distances == MINSKY.distances
    assert bounds(MINSKY, 2) == CostRange(1, 40)
    assert bounds(MINSKY, 3) == CostRange(41, 60)


def test_utilities_are_those_of_the_authors_code() -> None:
    across = excess(MINSKY, (0, 2), Comm())
    assert job_utility(0, 0) == pytest.approx(1.0)
    assert job_utility(across, 0) == pytest.approx(0.2534, abs=5e-5)
    assert job_utility(0, 0.95) == pytest.approx(0.1861, abs=5e-5)
    assert job_utility(across, 0.95) == pytest.approx(0.1202, abs=5e-5)
    assert system_utility(across, 0, 0.5) == pytest.approx(0.3612, abs=5e-5)


terms = st.floats(0, 1)


# of the authors' configuration files: neutral, and with an emphasis on each term
WEIGHTS = (NEUTRAL, Weights(0.1, 0.8, 0.1), Weights(0.1, 0.1, 0.8), Weights(0.8, 0.1, 0.1))


@given(terms, terms, terms, st.sampled_from(WEIGHTS))
def test_utilities_lie_between_0_and_1_and_fall_with_every_term(a: float, b: float, c: float, weights: Weights) -> None:
    assert 0 < job_utility(a, b, weights) <= 1 + 1e-12
    assert 0 < system_utility(a, b, c, weights) <= 1 + 1e-12
    for worse in ((1.0, b, c), (a, 1.0, c), (a, b, 1.0)):
        assert system_utility(*worse, weights) <= system_utility(a, b, c, weights)
        assert job_utility(*worse[:2], weights) <= job_utility(a, b, weights)


def test_a_placement_at_its_best_has_utility_one() -> None:
    assert system_utility(EPSILON, 0, 0, NEUTRAL) == pytest.approx(1)


SAMPLES = {
    "dgx1-v100.txt": ({(0, 3), (0, 4), (1, 2), (5, 6)}, {(0, 5), (1, 4), (3, 5)}),
    "power9-ac922.txt": ({(0, 1)}, {(0, 2)}),
    "pcie-8gpu-4090-two-socket-sys.txt": ({(0, 1), (0, 7)}, {(0, 1), (0, 7)}),
    "h200-8-gpurows.txt": ({(0, 1), (0, 7)}, {(0, 1), (0, 7)}),
}
"""Some of the best and of the worst pairs of recorded machines, read off their matrices by eye."""


@pytest.mark.parametrize("name", SAMPLES)
def test_best_and_worst_pairs_are_those_the_links_say(name: str, data: Path) -> None:
    shape = shape_of(read_topology(data / "topologies" / name).topology)
    costs = {pair: cost(shape, pair) for pair in combinations(range(shape.gpus), 2)}
    best, worst = SAMPLES[name]
    assert {costs[pair] for pair in best} == {min(costs.values())}
    assert {costs[pair] for pair in worst} == {max(costs.values())}


RECORDED = (
    "a100-8-4nic-pxb", "a100-8-aws-p4d", "a100-8-nv8-vm-8nic", "container-two-gpu-phb", "dgx1-p100-old-soc",
    "dgx1-v100", "dgx2-16xV100-nvswitch-partial", "h200-8-della-blank-affinity-gpurows", "h200-8-gpurows",
    "pcie-8gpu-4090-two-socket-sys", "pcie-8gpu-p40-one-socket-old", "pcie-k80-4-one-socket-spaces", "power9-ac922",
    "v100-sxm2-8-new-format",
)  # fmt: skip


def test_every_recorded_machine_is_named_here(data: Path) -> None:
    assert tuple(sorted(path.stem for path in (data / "topologies").glob("*.txt"))) == RECORDED


def recorded(name: str, data: Path) -> Topology:
    return read_topology(data / "topologies" / f"{name}.txt").topology


@pytest.mark.parametrize("name", [*RECORDED, *PRESETS])
def test_on_every_machine_the_best_pairs_have_the_best_links_and_the_worst_the_worst(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Also with only some pairs free: a job of two GPUs is given one of the best of them."""
    topology = PRESETS[name]() if name in PRESETS else recorded(name, request.getfixturevalue("data"))
    shape, order = shape_of(topology), list(LinkKind)
    pairs = list(combinations(range(shape.gpus), 2))
    links = {(a, b): (order.index(topology.links[a][b].kind), -topology.links[a][b].lanes) for a, b in pairs}
    costs = {pair: cost(shape, pair) for pair in pairs}
    assert _with(costs, min(costs.values())) == _with(links, min(links.values()))
    assert _with(costs, max(costs.values())) <= _with(links, max(links.values()))
    for one, other in combinations(pairs, 2):
        if not {*one} & {*other}:
            a, b = exact(Question(shape, sum(1 << gpu for gpu in (*one, *other)), (), 2))[0].gpus
            assert links[a, b] == min(links[pair] for pair in combinations(sorted((*one, *other)), 2))


def _with(found: dict[tuple[int, int], T], value: T) -> set[tuple[int, int]]:
    return {pair for pair, each in found.items() if each == value}


def test_wide_nvlinks_are_nearer_than_narrow_ones_and_those_than_two_in_a_row() -> None:
    shape = shape_of(PRESETS["dgx1"]())
    assert shape.distances[0][3] == 1.0
    assert shape.distances[0][1] == 1.5
    assert shape.distances[0][5] == 2.5
    assert shape.sockets == (0, 0, 0, 0, 1, 1, 1, 1)


@presets
@pytest.mark.parametrize("count", [1, 2, 3])
def test_distinct_sets_leave_out_only_what_is_alike(name: str, count: int) -> None:
    shape = shape_of(PRESETS[name]())
    kept = list(distinct_sets(shape, (1 << shape.gpus) - 1, count))
    kinds = {(cost(shape, gpus), shape.sockets_of(gpus)) for gpus in combinations(range(shape.gpus), count)}
    assert {(cost(shape, gpus), shape.sockets_of(gpus)) for gpus in kept} == kinds
    assert len(set(kept)) == len(kept)
    if name in {"dgx2", "dgx-a100"}:
        assert len(kept) == count + 1


def test_only_free_gpus_are_drawn() -> None:
    assert sorted(distinct_sets(MINSKY, 0b1101, 2)) == [(0, 2), (2, 3)]
    assert list(distinct_sets(MINSKY, 0b0001, 2)) == []


@pytest.mark.parametrize("pattern", [CommPattern.RING, CommPattern.PIPELINE])
def test_ranks_are_put_in_the_order_that_makes_edges_shortest(pattern: CommPattern) -> None:
    shape = shape_of(PRESETS["dgx1"]())
    for gpus in ((0, 1, 4, 5), (0, 2, 5, 7), (1, 3, 6), (0, 1, 2, 3, 7)):
        least = min(_length(shape, order, pattern) for order in permutations(gpus))
        assert _length(shape, best_order(shape, gpus, pattern), pattern) == pytest.approx(least)
        assert cost(shape, gpus, pattern) == pytest.approx(least)


def _length(shape: Shape, order: tuple[int, ...], pattern: CommPattern) -> float:
    ends = [*order[1:], *([order[0]] if pattern is CommPattern.RING else [])]
    return sum(shape.distances[a][b] for a, b in zip(order, ends, strict=False))


def test_a_large_ring_is_ordered_by_nearness() -> None:
    sockets = tuple(gpu % 2 for gpu in range(12))
    order = best_order(flat(sockets), tuple(range(12)), CommPattern.RING)
    assert sorted(order) == list(range(12))
    assert sum(sockets[a] != sockets[b] for a, b in zip(order, [*order[1:], order[0]], strict=True)) == 2


@pytest.mark.parametrize(("batch", "weight"), [(None, 4), (1, 4), (3, 4), (4, 3), (64, 2), (128, 1), (1000, 1)])
def test_the_weight_of_communication_follows_the_batch_class(batch: int | None, weight: int) -> None:
    assert comm_of(JobSpec(name="j", family="f", batch_size=batch)).weight == weight
    assert comm_of(JobSpec(name="j", family="f", batch_size=batch, comm_weight=0)).weight == 0


def test_a_job_that_talks_little_minds_the_distance_less() -> None:
    excesses = [excess(MINSKY, (1, 2), Comm(CommPattern.ALL, weight)) for weight in (4, 3, 2, 1, 0)]
    assert excesses == sorted(excesses, reverse=True)
    assert excesses[0] == pytest.approx(19 / 40)
    assert excesses[-1] == 0.0


def test_links_that_do_not_match_the_gpus_are_not_believed() -> None:
    gpus = tuple(Gpu(index=i, uuid=str(i), type="V100", memory_bytes=1, socket=i // 2) for i in range(4))
    node = Node(name="n", gpus=gpus)
    assert shape_of_node(node) is flat((0, 0, 1, 1))
    link = Link(LinkKind.PIX)
    two = Topology(((Link(LinkKind.SELF), link), (link, Link(LinkKind.SELF))), (0, 0))
    assert shape_of_node(Node(name="n", gpus=gpus, topology=two)) is flat((0, 0, 1, 1))
    assert shape_of_node(Node(name="n", gpus=gpus[:2], topology=two)).distances[0][1] == 2.0


def test_neighbours_are_harmless_until_measured() -> None:
    a, b = ProfileKey("a", 1, 1, "P100"), ProfileKey("b", 1, 1, "P100")
    neighbours = NeighbourBeliefs()
    beliefs = Beliefs(neighbours=neighbours)
    assert (neighbours.slowdown(a, b), harm_beside(beliefs, a, b), neighbours.worst) == (1.0, 0.0, WORST_MIN)
    neighbours.learn(Beside(a, b), 1.2)
    neighbours.learn(Beside(a, b), 1.4)
    assert neighbours.slowdown(a, b) == pytest.approx(1.3)
    assert neighbours.slowdown(b, a) == 1.0
    assert harm_beside(beliefs, a, b) == pytest.approx(1.0)
    assert harm_beside(beliefs, a, b, Measure.INVERSE) == pytest.approx(1 / 1.3)
    neighbours.learn(Beside(b, a), 0.9)
    assert harm_beside(beliefs, b, a, Measure.INVERSE) == 0.0
    with pytest.raises(ValueError, match="must be above 0"):
        neighbours.learn(Beside(a, b), 0.0)
