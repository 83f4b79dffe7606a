"""Placers of a node: exact against every set, DRB against exact, bipartition against every cut."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.job import CommPattern
from colane.model.topologies import PRESETS
from colane.perf.topology import Comm, Shape, flat, shape_of
from colane.scheduling.mechanisms.topology.drb import bipartition, cut, drb, edges
from colane.scheduling.mechanisms.topology.node_fit import Neighbour, Question, exact, judge, left_free, spread_excess

MINSKY = flat((0, 0, 1, 1))
presets = pytest.mark.parametrize("name", PRESETS)


def random_question(shape: Shape, random: Random) -> Question:
    free = random.randrange(1, 1 << shape.gpus)
    shares = (0.0, 0.3, 0.8)
    near = [Neighbour(random.randint(1, 3), random.choice(shares), random.choice(shares)) for _ in range(2)]
    comm = Comm(random.choice(tuple(CommPattern)), random.randint(1, 4))
    ranks = random.randint(1, min(4, free.bit_count()))
    return Question(shape, free, tuple(sorted(near[: random.randint(0, 2)])), ranks, comm)


@pytest.mark.parametrize("name", ["minsky", "dgx1", "dgx-a100", "pcie-8x2socket"])
def test_exact_finds_what_looking_at_every_set_finds(name: str) -> None:
    shape, random = shape_of(PRESETS[name]()), Random(name)
    for _ in range(60):
        question = random_question(shape, random)
        free = [gpu for gpu in range(shape.gpus) if question.free >> gpu & 1]
        every = [judge(question, gpus) for gpus in combinations(free, question.ranks)]
        found = exact(question)
        assert found[0].system == pytest.approx(max(fit.system for fit in every))
        assert found[-1].job == pytest.approx(max(fit.job for fit in every))
        assert [fit.job for fit in found] == sorted(fit.job for fit in found)
        assert [-fit.system for fit in found] == sorted(-fit.system for fit in found)


@presets
def test_drb_is_never_better_than_exact_and_little_worse(name: str) -> None:
    shape, random = shape_of(PRESETS[name]()), Random(name)
    losses = []
    for _ in range(200):
        question = random_question(shape, random)
        best, found = exact(question)[0], drb(question)[0]
        assert len(set(found.gpus)) == question.ranks
        assert all(question.free >> gpu & 1 for gpu in found.gpus)
        assert found.system <= best.system + 1e-12
        losses.append(1 - found.system / best.system)
    assert sum(losses) / len(losses) < 0.05


def test_without_room_there_is_no_answer() -> None:
    question = Question(MINSKY, 0b0110, (), 3)
    assert exact(question) == drb(question) == ()


def test_a_pair_goes_onto_one_socket_and_keeps_the_other_whole() -> None:
    assert exact(Question(MINSKY, 0b1111, (), 2))[0].gpus == (0, 1)
    assert exact(Question(MINSKY, 0b1110, (), 2))[0].gpus == (2, 3)
    assert exact(Question(MINSKY, 0b1110, (), 1))[0].gpus == (1,)


def test_a_job_keeps_away_from_one_that_disturbs_it() -> None:
    question = Question(MINSKY, 0b1110, (Neighbour(0b01, 0.9, 0.9),), 1)
    for search in (exact, drb):
        assert search(question)[0].gpus[0] in (2, 3)


def test_answers_that_are_better_for_the_job_follow() -> None:
    """Beside one that it would disturb alone, or beside one who disturbs it."""
    question = Question(MINSKY, 0b1010, (Neighbour(0b01, 0.3, 0.0), Neighbour(0b10, 0.0, 0.9)), 1)
    first, second = exact(question)
    assert (first.gpus, second.gpus) == ((1,), (3,))
    assert first.job < second.job == pytest.approx(1.0)


def test_what_is_left_free_is_the_mean_over_sockets() -> None:
    assert left_free(Question(MINSKY, 0b1111, (), 1), (0,)) == pytest.approx((0.5 + 1) / 2)
    assert left_free(Question(flat((0, 0, 0, 1)), 0b1111, (), 1), (3,)) == pytest.approx(0.5)


@given(st.integers(2, 8), st.integers(0, 2**32))
def test_halves_are_balanced_and_cut_no_more_than_the_start(size: int, seed: int) -> None:
    random = Random(seed)
    affinity = {(a, b): random.choice((0.0, 0.1, 1.0)) for a, b in combinations(range(size), 2)}
    halves = bipartition(list(range(size)), affinity)
    assert sorted(halves[0] + halves[1]) == list(range(size))
    assert abs(len(halves[0]) - len(halves[1])) <= 1
    start = {v: int(v >= (size + 1) // 2) for v in range(size)}
    side = {v: int(v in halves[1]) for v in range(size)}
    assert cut(side, affinity) <= cut(start, affinity) + 1e-9


def test_two_cliques_are_told_apart_from_a_bad_start() -> None:
    even, odd = (0, 2, 4, 6), (1, 3, 5, 7)
    affinity = {(a, b): 1.0 if a % 2 == b % 2 else 0.05 for a, b in combinations(range(8), 2)}
    assert {frozenset(half) for half in bipartition(list(range(8)), affinity)} == {frozenset(even), frozenset(odd)}


def test_job_graphs() -> None:
    assert edges(Comm(CommPattern.ALL, 4), 3) == {(0, 1): 4, (0, 2): 4, (1, 2): 4}
    assert edges(Comm(CommPattern.RING, 2), 4) == {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2}
    assert edges(Comm(CommPattern.RING, 1), 2) == {(0, 1): 1}
    assert edges(Comm(CommPattern.PIPELINE, 1), 3) == {(0, 1): 1, (1, 2): 1}


def test_the_cost_of_several_machines_is_the_distance_between_them() -> None:
    one, split = [(MINSKY, (0, 1))], [(MINSKY, (0,)), (MINSKY, (0,))]
    assert spread_excess(one, Comm(), on_each=0) == 0.0
    assert spread_excess(split, Comm(), on_each=0) == pytest.approx((100 - 1) / 200)
    assert spread_excess(split, Comm(weight=0), on_each=0) == 0.0
    assert spread_excess(split, Comm(), on_each=1) == 0.0


@pytest.mark.parametrize("pattern", CommPattern)
def test_a_third_machine_costs_more_than_two(pattern: CommPattern) -> None:
    whole = [(MINSKY, (0, 1, 2, 3)), (MINSKY, (0, 1, 2, 3))]
    broken = [(MINSKY, (0, 1, 2, 3)), (MINSKY, (0, 1, 2)), (MINSKY, (3,))]
    assert spread_excess(whole, Comm(pattern), on_each=0) == 0.0
    assert 0.0 < spread_excess(broken, Comm(pattern), on_each=0) <= 1.0
