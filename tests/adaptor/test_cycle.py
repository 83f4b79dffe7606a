from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.adaptor.cycle import MANY, Cycle


def counted(keys: Iterable[object]) -> int:
    cycle = Cycle()
    return sum(cycle.event(key) for key in keys)


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ("", 0),
        ("A" * 10, 10),
        ("DG" * 10, 10),
        ("ABC" * 10, 10),
        ("DDDDDG" * 4, 20),
        ("A" * 10 + "B" * 10, 20),
        ("A" * 10 + "B" * 10 + "A" * 10, 30),
        ("DG" * 10 + "D" * 10, 20),
        ("AB", 1),
    ],
)
def test_iterations_of_several_optimizers(keys: str, steps: int) -> None:
    assert counted(keys) == steps


@given(st.permutations("ABCDE"), st.integers(1, 20))
def test_a_round_is_one_iteration_in_any_order(order: list[str], rounds: int) -> None:
    assert counted(order * rounds) == rounds


@given(st.lists(st.sampled_from("ABC"), max_size=60))
def test_never_more_iterations_than_steps_nor_fewer_than_one_in_a_round(keys: list[str]) -> None:
    assert min(len(keys), 1) <= counted(keys) <= len(keys)


@given(st.lists(st.sampled_from("ABC"), max_size=30), st.lists(st.sampled_from("ABC"), max_size=30))
def test_what_was_counted_stays_counted(first: list[str], then: list[str]) -> None:
    assert counted(first) <= counted(first + then)


def test_optimizers_made_anew_for_each_step_are_counted() -> None:
    steps = 10 * MANY
    assert counted(range(steps)) > steps - MANY


def test_the_end_of_a_round_is_the_boundary() -> None:
    cycle = Cycle()
    assert [cycle.event(key) for key in "DGDGDG"] == [1, 0, 0, 1, 0, 1]
