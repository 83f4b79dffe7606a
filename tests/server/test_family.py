"""Families of commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.server.family import FAMILY_LENGTH_MAX, derive_family


@pytest.mark.parametrize(
    ("command", "family"),
    [
        ("python train.py --lr 0.1", "train.py --lr"),
        ("/opt/env/bin/python3.11 -u src/train.py --lr=0.1 -v", "train.py --lr -v"),
        ("python -m pkg.train --b 1 --a 2", "pkg.train --a --b"),
        ("./run.sh data 3", "run.sh"),
        ("bash -c secret", "bash -c 2bb80d53"),
        ("bash -lc secret", "bash -c 2bb80d53"),
        ("env TOKEN=abc python train.py", "train.py"),
        ("timeout 5 python train.py", "train.py"),
        ("torchrun --nproc 2 train.py --x", "train.py --x"),
        ("python", "python"),
        ("env", "env"),
        ("python train.py --lr -0.1", "train.py --lr"),
        ("sleep 5", "sleep"),
    ],
)
def test_family(command: str, family: str) -> None:
    assert derive_family(command.split()) == family


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8))
def test_any_command_has_a_family_of_bounded_length(command: list[str]) -> None:
    family = derive_family(command)
    assert 0 < len(family) <= FAMILY_LENGTH_MAX
    assert family.isprintable()


def test_order_and_values_of_arguments_do_not_matter() -> None:
    first = derive_family(["python", "t.py", "--a", "1", "--b", "2"])
    assert first == derive_family(["python", "t.py", "--b", "9", "--a", "8"])
