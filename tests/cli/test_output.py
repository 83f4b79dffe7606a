from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from colane.cli import output
from colane.cli.jobs import objects as jobs
from colane.cli.nodes.command import ranges
from colane.cli.output import ScreenColumn
from colane.lab.demo.screen import LiveScreen


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
        (-5, "0.0 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (0, "0 B"), (2_000, "2 kB"), (25.3e9, "25.3 GB"), (4e15, "4000 TB")]
)
def test_sizes(size: float | None, text: str) -> None:
    assert output.size(size) == text


def test_plain_tables_are_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output.print_table((ScreenColumn("ID", is_number=True), ScreenColumn("NAME")), [["1", "a"], ["12", long]])
    assert capsys.readouterr().out.splitlines() == ["ID  NAME", " 1  a", f"12  {long}"]


@pytest.mark.parametrize(("cores", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 8], "0-2,8"), ([5, 4], "4-5")])
def test_core_ranges(cores: list[int], text: str) -> None:
    assert ranges(cores) == text


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"state": "succeeded", "exit_code": 0}, 0),
        ({"state": "succeeded", "exit_code": None, "signal": 15}, 0),
        ({"state": "failed", "exit_code": 3}, 3),
        ({"state": "failed", "exit_code": None, "signal": 9}, 137),
        ({"state": "timed-out", "exit_code": 0}, 1),
        ({"state": "cancelled"}, 1),
    ],
)
def test_exit_codes(job: Any, code: int) -> None:
    assert jobs.exit_code_of(job) == code


def test_the_live_screen_draws_bars() -> None:
    file = io.StringIO()
    screen = LiveScreen(Console(file=file, force_terminal=True, width=110))
    batch: Any = [
        {
            "id": 1, "name": "vgg19-1", "state": "running-protected", "gpus": ["here/0"], "steps": 30,
            "steps_total": 60, "submit_s": 0.0, "first_start_s": 1.0, "end_s": None,
            "progress": {"step_mean_s": 0.5, "loss": 2.25},
        },
        {
            "id": 2, "name": "vgg19-2", "state": "queued", "gpus": [], "steps": 0, "steps_total": 60,
            "submit_s": 0.0, "first_start_s": None, "end_s": None, "progress": None,
        },
    ]  # fmt: skip
    console = Console(file=file, width=110)
    console.print(screen._table(batch))
    drawn = file.getvalue()
    for expected in ("vgg19-1", "running", "here/0", "30/60", "2.250", "queued", "0 of 2 done"):
        assert expected in drawn


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x9b2J", "\u202egnp.exe", "\x07", "\u2066x", "\r"])
def test_nothing_of_what_others_say_reaches_the_terminal(evil: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table((output.ScreenColumn("NAME"),), [[f"a{evil}"]], title=evil)
    output.say(f"node: {evil}")
    output.note(evil)
    output.print_fields([("label", f"x\n{evil}")])
    output.print_json({"name": f"{evil} ä"})
    said = capsys.readouterr()
    whole = said.out + said.err
    assert all(one.isprintable() or one == "\n" for one in whole), whole
    assert "ä" in whole
    assert f'"name": "{json.dumps(evil)[1:-1]} ä"' in whole


def test_what_can_be_printed_stays_as_it_is() -> None:
    assert output.clean("größe 大きい 1 µs") == "größe 大きい 1 µs"


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ([("main.py", "a/main.py@1 --lr"), ("main.py", "a/main.py@1 -v")], ["main.py", "main.py"]),
        ([("main.py", "a/main.py@1"), ("main.py", "b/main.py@2"), ("x", "x")], ["a/main.py", "b/main.py", "x"]),
        ([("main.py", "a/main.py@1"), ("main.py", "a/main.py@2")], ["a/main.py@1", "a/main.py@2"]),
        ([("main.py", "p/vae/main.py"), ("main.py", "p/gan/main.py")], ["p/vae/main.py", "p/gan/main.py"]),
        ([("mine", "a/main.py@1"), ("mine", "b/main.py@2")], ["mine", "mine"]),
        ([("vgg11", "vgg11"), ("vgg11", "declared")], ["vgg11", "vgg11"]),
        ([("x", None)], ["x"]),
    ],
)
def test_scripts_of_one_name_are_shown_with_their_directories(
    named: list[tuple[str, str | None]], shown: list[str]
) -> None:
    found: Any = [{"name": name, "family": family} for name, family in named]
    assert jobs.names_apart(found) == shown
