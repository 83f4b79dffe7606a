"""Families of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colane.server.family import FAMILY_LENGTH_MAX, derive_family, name_of


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


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8), st.sampled_from(["", "/usr"]))
@example(["\0"], "")
@example(["python", "\0/x.py"], "/usr")
@example(["./\ud800"], "/usr")
def test_any_command_has_a_family_of_bounded_length(command: list[str], directory: str) -> None:
    family = derive_family(command, directory)
    assert 0 < len(family) <= FAMILY_LENGTH_MAX
    assert family.isprintable()


def test_order_and_values_of_arguments_do_not_matter() -> None:
    first = derive_family(["python", "t.py", "--a", "1", "--b", "2"])
    assert first == derive_family(["python", "t.py", "--b", "9", "--a", "8"])


def test_scripts_of_one_name_in_two_directories_are_not_one_family(tmp_path: Path) -> None:
    found = [derive_family(["python", "main.py", "--epochs", "3"], str(tmp_path / part / "net")) for part in "ab"]
    assert found[0] != found[1]
    assert all(one.startswith("net/main.py@") and one.endswith(" --epochs") for one in found)
    assert [name_of(one) for one in found] == ["main.py"] * 2
    same = derive_family(["python", "net/main.py", "--epochs=4"], str(tmp_path / "a"))
    assert same == found[0], "the directory it is started from is of no matter"


def test_in_a_repository_the_path_within_it_counts_wherever_that_lies(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place / "proj" / ".git").mkdir(parents=True)
    found = [derive_family(["./vae/main.py", "-e", "3"], str(tmp_path / place / "proj")) for place in ("one", "two")]
    assert found == ["proj/vae/main.py -e"] * 2
    assert derive_family(["python", "-m", "pkg.train"], str(tmp_path / "one" / "proj")) == "proj/pkg.train"


def test_programs_of_the_system_go_by_their_names(tmp_path: Path) -> None:
    for command in (["sleep", "5"], ["/usr/bin/sleep", "5"], ["env", "A=1", "sleep", "5"]):
        assert derive_family(command, str(tmp_path)) == "sleep"
