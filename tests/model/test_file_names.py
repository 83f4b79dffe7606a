from __future__ import annotations

import pytest

from colane.model import file_names

VALUES = {"j": 12, "x": "a/b", "A": 10, "a": 1, "u": "ann", "N": "n1"}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("logs/%x-%j-%a.out", "logs/a_b-12-1.out"),
        ("%A_%4a", "10_0001"),
        ("%5x%%%u@%N", "a_b%ann@n1"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_places_are_filled(pattern: str, name: str) -> None:
    assert file_names.problem(pattern, is_array=True) is None
    assert file_names.filled(pattern, VALUES) == name


@pytest.mark.parametrize(
    ("pattern", "is_array", "said"),
    [
        ("%q", True, "has '%q'; known are %j"),
        ("100%", True, "has '%'; known"),
        ("%\n", True, "known are"),
        ("%99j", True, "may be 10 digits wide"),
        ("%a", False, "%a, which is of arrays: give --array"),
        ("%A", False, "%A, which is of arrays"),
    ],
)
def test_a_place_that_is_none_is_named(pattern: str, is_array: bool, said: str) -> None:
    assert said in (file_names.problem(pattern, is_array=is_array) or "")


@pytest.mark.parametrize(("pattern", "is_apart"), [("%a", True), ("x%j", True), ("%A", False), ("/dev/null", True)])
def test_names_by_which_elements_are_told_apart(pattern: str, is_apart: bool) -> None:
    assert file_names.is_apart(pattern) is is_apart
