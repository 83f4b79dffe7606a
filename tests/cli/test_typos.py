"""Every option and command typed wrong in the ways hands do it: the right one is named first, and nothing is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from colane.cli import app
from colane.cli.command import complaint, misread
from colane.cli.errors import MISUSE
from colane.cli.words.other_words import ELSEWHERE, OPTIONS, meant_by
from tests.cli.conftest import Colane
from tests.cli.test_misuse import leaves, lines

ROOT: Any = get_command(app.make_app())
COMMANDS = dict(leaves(ROOT))
TAKEN = {word for table in (OPTIONS, ELSEWHERE) for words, _ in table for word in words.split()}
"""What other systems call their options goes before a slip of the hand."""


def refusal(*words: str) -> str:
    """What is said of a command line that is refused before its command begins; one line, and code 2."""
    with pytest.raises(typer.TyperException) as caught:
        ROOT.main(list(words), prog_name="colane", standalone_mode=False)
    said = complaint(caught.value)
    assert caught.value.exit_code == MISUSE
    assert "\n" not in said
    return said


def long_options(command: Any) -> list[str]:
    options = [param for param in command.params if param.param_type_name == "option"]
    return [name for each in options for name in (*each.opts, *each.secondary_opts) if name.startswith("--")]


def slips(name: str) -> Iterator[str]:
    """One letter left out, doubled, or swapped with the next."""
    for at, letter in enumerate(name):
        yield name[:at] + name[at + 1 :]
        yield name[:at] + 2 * letter + name[at + 1 :]
        yield name[:at] + name[at : at + 2][::-1] + name[at + 2 :]


def typed_wrong(command: Any) -> Iterator[tuple[str, str]]:
    """What was typed, and the option that was meant."""
    known = {*long_options(command), "--help"}
    for name in sorted(known):
        for slip in sorted({f"--{body}" for body in slips(name[2:])} - known - TAKEN - {"--"}):
            yield slip, name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_slip_in_any_option_names_the_right_one_first(name: str) -> None:
    typed = list(typed_wrong(COMMANDS[name]))
    for slip in dict(typed):
        meant = tuple(f"No such option: {slip}; did you mean {option}" for one, option in typed if one == slip)
        assert refusal(*name.split(), slip).startswith(meant)


@pytest.mark.parametrize("name", COMMANDS)
def test_one_dash_before_a_long_option_is_refused(name: str) -> None:
    for option in long_options(COMMANDS[name]):
        for typed in (option[1:], f"{option[1:]}=x", f"\N{EM DASH}{option[2:]}", f"\N{EN DASH}{option[2:]}"):
            assert f"did you mean {option}?" in refusal(*name.split(), typed)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_is_no_other_options_value(name: str) -> None:
    options = [param for param in COMMANDS[name].params if param.param_type_name == "option"]
    for option in (each for each in options if not each.is_flag):
        said = refusal(*name.split(), option.opts[0], "--help")
        assert said.startswith(f"Option '{option.opts[0]}' requires an argument, and --help is an option")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_slip_in_any_command_names_the_right_one(name: str) -> None:
    *group, last = name.split()
    siblings = {each.split()[len(group)] for each in COMMANDS if each.split()[: len(group)] == group}
    for slip in sorted({*slips(last), last.upper(), last.title()} - siblings - {""}):
        if not group and meant_by(slip):
            continue
        said = refusal(*group, slip)
        assert said.startswith(f"No such command '{slip}'; did you mean")
        assert last in said.partition("did you mean")[2].partition("?")[0], slip


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("submit -nodes 2 -- true", "No such option: -nodes; did you mean --nodes?"),
        ("submit -N 2 -- true", "did you mean --multi-node?"),
        ("submit -N2 -- true", "No such option: -N; did you mean --multi-node?"),
        ("submit -n 4 -- true", "did you mean --cores?"),
        ("submit -q debug -- true", "did you mean --qos?"),
        ("submit -g 2 -- true", "did you mean -G?"),
        ("submit -d 7 -- true", "did you mean --after"),
        ("submit --error x -- true", "colane logs JOB"),
        ("submit --nodelist a -- true", "did you mean --pool?"),
        ("submit --gres=gpu:1 -- true", "did you mean --gpus?"),
        ("submit --GPUS 2 -- true", "did you mean --gpus?"),
        ("submit --gpu_type V100 -- true", "did you mean --gpu-type?"),
        ("submit --name --gpus 2 -- true", "Option '--name' requires an argument, and --gpus is an option"),
        ("submit -J -W -- true", "Option '-J' requires an argument, and -W is an option"),
        ("submit --kind trainin -- true", "did you mean training?"),
        ("submit -c4x -- true", "Invalid value for '--cores' / '-c': must be a whole number"),
        ("submit --mem 1TBB -- true", "must be a size such as 2GB"),
        ("submit --gpu-memory lots -- true", "must be a size such as 2GB"),
        ("submit --host-bandwidth fast -- true", "must be bytes per second such as 20GB/s"),
        ("submit --time-limit 1:2:3:4 -- true", "must be a duration such as"),
        ("up --turns fiar", "did you mean fair?"),
        ("up --policy colone", "did you mean colane"),
        ("simulate -c phily", "did you mean philly?"),
        ("simulate -trace t.csv", "No such option: -trace; did you mean --trace?"),
        ("ps -all", "did you mean --all?"),
        ("-V", "did you mean --version?"),
        ("--versoin", "did you mean --version?"),
    ],
)
def test_what_people_type(colane: Colane, typed: str, expected: str) -> None:
    said = colane(*typed.split())
    assert said.code == 2, said
    assert len(lines(said.err)) == 1
    assert expected in said.err


def test_what_was_typed_right_is_left_alone() -> None:
    awaiting = {"--name": True, "-n": True, "--all": False, "-a": False, "--nap": False}
    for words in (["-nap"], ["-an", "-5"], ["--name=--all"], ["--", "-all"], ["-a", "x", "--all"], ["-"], ["--name"]):
        expected = "did you mean --nap?" if words == ["-nap"] else ""
        assert expected in misread(words, awaiting, "ps", is_mixed=True)
        assert bool(expected) == bool(misread(words, awaiting, "ps", is_mixed=True)), words
    assert not misread(["python", "-all"], awaiting, "submit", is_mixed=False)
    assert not misread(["--name", "-x", "python", "-all"], awaiting, "submit", is_mixed=False)
